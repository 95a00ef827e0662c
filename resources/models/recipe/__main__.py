"""The stages of the recipe, each a command that leaves its results in the work folder.

`python -m recipe STAGE [options]`, run in `resources/models`. A stage whose result is there is
skipped, so a command line may name all of them again. README.md gives the order.
"""

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

Options = argparse.Namespace
SHARED_SEED = 20
_START = time.perf_counter()
_CAPACITY = 384


def log(text: str) -> None:
    """Print with the seconds since the process began."""
    sys.stdout.write(f"[{time.perf_counter() - _START:6.1f}] {text}\n")
    sys.stdout.flush()


def prepare(options: Options) -> None:
    """Cut the teacher's file into parts that travel, and extract WordNet."""
    from recipe import teacher, wordnet

    data = options.gguf.read_bytes()
    if hashlib.sha256(data).hexdigest() != teacher.GGUF_SHA256:
        raise SystemExit(f"{options.gguf} is not the expected file")
    options.work.mkdir(parents=True, exist_ok=True)
    size = -(-len(data) // options.parts)
    for i in range(options.parts):
        part = options.work / f"part{i + 1:02d}"
        part.write_bytes(data[i * size : (i + 1) * size])
        log(f"{part} {part.stat().st_size}")
    log(f"wordnet: {wordnet.write(options.wordnet, options.work / 'wordnet.json.gz')}")


def join(options: Options) -> None:
    """Join the parts to `teacher.gguf` and check it."""
    from recipe.teacher import GGUF_SHA256

    data = b"".join(path.read_bytes() for path in sorted(options.work.glob("part[0-9][0-9]")))
    if hashlib.sha256(data).hexdigest() != GGUF_SHA256:
        raise SystemExit(f"the parts make {len(data)} bytes with a wrong checksum")
    (options.work / "teacher.gguf").write_bytes(data)
    log(f"teacher joined, {len(data)} bytes")


def selfcheck(options: Options) -> None:
    """Try what only the device can try."""
    from recipe import device, selfcheck

    where = device.pick(options.device)
    log(device.facts(where))
    failed = selfcheck.run(where, options.seconds, log, options.toy)
    if {"check_kernels", "check_sampler"} & set(failed):
        (options.work / "plain").touch()  # `sample` then does without the Triton kernels
    log(f"selfcheck: failed {failed}")


def prompts(options: Options) -> None:
    """Make the prompts and their tokens; the teacher's first part is enough."""
    from recipe import prompts, sources, teacher

    known = sources.wordnet(options.work / "wordnet.json.gz").topics
    made = list(prompts.make(options.prompts, known, SHARED_SEED))
    prompts.save(made, options.work / "prompts.jsonl")
    first = next(p for p in (options.work / "teacher.gguf", options.work / "part01") if p.exists())
    tokenizer = teacher.read_tokenizer(teacher.GgufFile(first))
    tokenizer.save(str(options.work / "teacher-tokenizer.json"))
    coded: list[np.ndarray] = []
    for start in range(0, len(made), 50_000):
        some = tokenizer.encode_batch(prompts.texts(made[start : start + 50_000]))
        coded += [np.array(one.ids, np.uint16) for one in some]
    flat = np.concatenate(coded)
    np.savez(options.work / "prompt-tokens.npz", flat=flat, sizes=[len(one) for one in coded])
    log(f"{len(made)} prompts, {len({p.text for p in made})} different, {len(flat)} tokens")


def sample(options: Options) -> None:
    """Let the teacher answer for `--seconds`."""
    import torch

    from recipe import device, prompts, sampler, teacher

    where = device.pick(options.device)
    plain = options.plain or (options.work / "plain").exists()
    fast = where.type == "cuda" and not plain
    gguf = teacher.GgufFile(options.work / "teacher.gguf")
    dtype = torch.bfloat16 if where.type == "cuda" else torch.float32
    weights = teacher.read_weights(gguf, where, dtype)
    stored = np.load(options.work / "prompt-tokens.npz")
    coded = np.split(stored["flat"], np.cumsum(stored["sizes"])[:-1])
    longest = [p.max_new for p in prompts.load(options.work / "prompts.jsonl")]
    table = sampler.prompt_table(coded, longest, _CAPACITY, where)
    rows = options.rows or (6144 if fast else 2048 if where.type == "cuda" else 32)
    torch.manual_seed(SHARED_SEED + options.round)
    rings = options.work / "rings"
    rings.mkdir(exist_ok=True)
    steps = 16 if options.toy else 256
    settings = sampler.SamplerOptions(rows, _CAPACITY, fast=fast, ring_steps=steps)
    with torch.inference_mode():
        steps = sampler.Sampler(weights, table, settings).run(options.seconds, rings, log)
    log(f"sampled {steps * rows} tokens")


def collect(options: Options) -> None:
    """Filter the teacher's replies into `teacher.jsonl`."""
    from recipe import collect

    work = options.work
    collect.collect(
        work / "rings",
        work / "prompts.jsonl",
        work / "teacher-tokenizer.json",
        work / "teacher.jsonl",
        options.workers,
        log,
    )
    log(f"teacher.jsonl {(work / 'teacher.jsonl').stat().st_size / 1e6:.1f} MB")


def keep(options: Options) -> None:
    """Pack as much of the teacher's text as may come back, in case that a later stage fails."""
    from recipe import collect

    collect.pack(options.work / "teacher.jsonl", options.out, log)


def corpus(options: Options) -> None:
    """Mix all text, train the tokenizer, encode; the held-out set comes back."""
    from recipe import corpus

    work = options.work
    made = corpus.Sources(
        work / "teacher.jsonl", work / "wordnet.json.gz", options.scale, SHARED_SEED
    )
    corpus.build(made, work, options.workers, log)
    (options.out / "held-out.jsonl").write_bytes((work / "held-out.jsonl").read_bytes())


def train(options: Options) -> None:
    """Train for `--seconds`; falls back to uncompiled code, and to AdamW, if need be."""
    from tokenizers import Tokenizer

    from recipe import corpus, device, judge, model, train

    where, work = device.pick(options.device), options.work
    data = corpus.load(work)
    held = judge.HeldOut(
        work / "held-out.jsonl", Tokenizer.from_file(str(work / "tokenizer.json")), where
    )
    share = data.mask.mean()
    log(f"{len(data.tokens)} tokens, {len(data.starts)} chats, {share:.2f} the assistant's")
    shape = model.TOY if options.toy else model.Shape()
    shape = model.Shape(**{**_asdict(shape), "vocab": held.vocab})
    start = time.perf_counter()
    for compiled, muon in ((True, True), (False, True), (False, False)):
        left = options.seconds - (time.perf_counter() - start)
        settings = train.TrainOptions(left, compiled=compiled, use_muon=muon, seed=SHARED_SEED)
        if options.toy:
            settings = train.TrainOptions(left, 8, 256, warmup=20, compiled=False, use_muon=muon)
        try:
            trainer = train.Trainer(shape, data, settings, where)
            result = trainer.run(work / "student.pt", held.mean, log)
        except (RuntimeError, ArithmeticError, TypeError) as error:
            log(f"FAILED, next form: {type(error).__name__}: {str(error)[:1500]}")
            continue
        result |= {f"held out, {k}": v for k, v in held.losses(trainer.model).items()}
        (options.out / "training.json").write_text(json.dumps(result, indent=1))
        return
    raise SystemExit("no form of training worked")


def _asdict(shape: object) -> dict[str, object]:
    from dataclasses import asdict

    return asdict(shape)  # type: ignore[call-overload]


def export(options: Options) -> None:
    """Write the FP8 model folder, and thirty replies of the student before quantisation."""
    import torch
    from tokenizers import Tokenizer

    from recipe import device, evaluate, export, judge, train

    where, work = device.pick(options.device), options.work
    dtype = torch.bfloat16 if where.type == "cuda" else torch.float32
    student = train.load(work / "student.pt", dtype, where)
    folder = options.out / "model"
    log(f"{folder} {export.export(student, work / 'tokenizer.json', folder)} bytes")
    tokenizer = Tokenizer.from_file(str(work / "tokenizer.json"))
    asked = evaluate.thirty()
    told = judge.replies(student, tokenizer, asked, longest=40 if options.toy else 260)
    text = "\n\n".join(f"Q: {q[0].text}\nA: {a}" for q, a in zip(asked, told, strict=True))
    (options.out / "samples.txt").write_text(text + "\n", encoding="utf-8")
    log(text)


def bundle(options: Options) -> None:
    """Put the small files of the model folder into one archive: few files may come back."""
    import tarfile

    folder = options.out / "model"
    with tarfile.open(options.out / "texts.tar.xz", "w:xz") as archive:
        for path in sorted(folder.iterdir()):
            if path.suffix != ".safetensors":
                archive.add(path, path.name)
                path.unlink()
        for name in ("held-out.jsonl", "samples.txt", "training.json"):
            if (options.out / name).exists():
                archive.add(options.out / name, name)
                (options.out / name).unlink()
    files = [path for path in options.out.rglob("*") if path.is_file()]
    log(f"to come back: {[(path.name, path.stat().st_size) for path in files]}")


def evaluate(options: Options) -> None:
    """Measure the model in `--model` on the held-out set; result to `--out`/NAME.json."""
    from recipe import device, evaluate

    target = options.out / f"{options.model.name}.json"
    evaluate.evaluate(
        options.model,
        options.held_out,
        target,
        device.pick(options.device),
        log,
        options.per_family,
    )


def traces(options: Options) -> None:
    """Store routing traces of the model in `--model` as `--out`/routing-traces.npz."""
    from recipe import routing_traces

    routing_traces.trace(options.model, options.out / "routing-traces.npz", log)


STAGES: dict[str, Callable[[Options], None]] = {
    "prepare": prepare,
    "join": join,
    "selfcheck": selfcheck,
    "prompts": prompts,
    "sample": sample,
    "collect": collect,
    "keep": keep,
    "corpus": corpus,
    "train": train,
    "export": export,
    "bundle": bundle,
    "evaluate": evaluate,
    "traces": traces,
}
_ONCE = ("join", "prompts", "collect", "corpus")  # skipped when done before


def main() -> int:
    """Run one stage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stage", choices=STAGES)
    parser.add_argument("--work", type=Path, default=Path("/tmp/recipe"))
    parser.add_argument("--out", type=Path, help="what comes back; default: WORK/out")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--rows", type=int, default=0, help="sequences at a time; 0 = by device")
    parser.add_argument("--round", type=int, default=0, help="another seed for another sampling")
    parser.add_argument("--prompts", type=int, default=1_600_000)
    parser.add_argument("--scale", type=float, default=1.0, help="of the hand-made text")
    parser.add_argument("--plain", action="store_true", help="no Triton kernels")
    parser.add_argument("--toy", action="store_true", help="a tiny student, for a CPU test")
    parser.add_argument("--gguf", type=Path)
    parser.add_argument("--wordnet", type=Path, default=Path("/usr/share/wordnet"))
    parser.add_argument("--parts", type=int, default=2)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--held-out", type=Path)
    parser.add_argument("--per-family", type=int, default=60)
    options = parser.parse_args()
    options.out = options.out or options.work / "out"
    options.out.mkdir(parents=True, exist_ok=True)
    options.work.mkdir(parents=True, exist_ok=True)
    done = options.work / f"{options.stage}.done"
    if options.stage in _ONCE and done.exists():
        log(f"{options.stage}: done before")
        return 0
    log(f"== {options.stage}")
    STAGES[options.stage](options)
    done.touch()
    log(f"== {options.stage} done")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
