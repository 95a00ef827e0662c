"""The jobs of the fake engine: progress, then the end that was asked for. See fake_engine.py."""

import argparse
import json
import os
import threading
from pathlib import Path

from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode, ExitCode
from engine.protocol.identity import content_id
from tests.support.fake_facts import Out, hang


def run_job(opts: argparse.Namespace) -> int:
    """Pretend to work: progress, then the end that was asked for; EOF on stdin cancels."""
    out = Out()
    cancelled = threading.Event()

    def watch() -> None:
        while os.read(0, 4_096):
            pass
        cancelled.set()

    threading.Thread(target=watch, daemon=True).start()
    spec = json.loads(opts.spec)
    for step in range(opts.job_steps + 1):
        if opts.job_end == "hang" and step == opts.job_steps // 2:
            hang() if opts.deaf else cancelled.wait()
        if cancelled.is_set():
            out.send(m.Error(code=ErrorCode.CANCELLED, message="Cancelled."))
            return int(ExitCode.CANCELLED)
        if opts.job_end == "crash" and step == opts.job_steps // 2:
            os._exit(int(ExitCode.INTERNAL))
        out.send(
            m.Progress(
                id=spec.get("id", ""),
                stage="measure" if opts.job == "profile" else opts.job,
                done_bytes=opts.job_total * step // max(1, opts.job_steps),
                total_bytes=opts.job_total,
            )
        )
        if opts.job == "profile":
            for link, gbps in (
                ("fill", 21.0),
                ("cpu", 14.5),
                ("joint_fill", 12.0),
                ("joint_cpu", 9.0),
            ):
                out.send(m.ProfilePoint(link=link, size_bytes=4_096 << step, gbps=gbps, threads=2))
        cancelled.wait(opts.job_seconds / max(1, opts.job_steps))
    if opts.job_end == "error":
        out.send(
            m.Error(
                code=ErrorCode.CORRUPT_CHECKPOINT,
                message="model-00002-of-00003.safetensors is damaged.",
                hint="Fetch this file again.",
            )
        )
        return int(ExitCode.FAILED)
    if opts.job_end != "silent":
        if opts.job == "convert" and spec.get("target"):
            write_ftw(Path(spec["target"]), Path(spec.get("source", "")))
        out.send(m.JobDone(job=opts.job, result={"path": spec.get("target", "")}))
    return int(ExitCode.OK)


def write_ftw(folder: Path, source: Path) -> None:
    """Leave a folder that the library lists and only this engine would load."""
    folder.mkdir(parents=True, exist_ok=True)
    index = {"format": "freetoken", "major": 2, "name": folder.name, "quant": "fp8_block"}
    has_source = (source / "config.json").is_file()
    index |= {"source": {"name": folder.name, "content": content_id(source) if has_source else ""}}
    (folder / "model.ftw").write_text(json.dumps(index), "utf-8")
