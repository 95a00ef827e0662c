"""What engine and jobs do, as lines of the app's own log.

Listens only; the engine's own lines come from its stderr.
"""

import logging

from PySide6.QtCore import QObject

from app.services.engine_client import EngineClient
from app.services.job_runner import JobRunner
from app.services.outcome import ProcessOutcome
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode

_log = logging.getLogger("app.events")


class EventLog(QObject):
    """Writes the lines. English only: a log is for engineers."""

    def __init__(self, client: EngineClient, jobs: JobRunner) -> None:
        super().__init__()
        client.ready.connect(self._on_ready)
        client.loaded.connect(self._on_loaded)
        client.unloaded.connect(self._on_unloaded)
        client.finished.connect(self._on_finished)
        client.resize_applied.connect(self._on_resized)
        client.resize_refused.connect(self._on_refused)
        client.failed.connect(self._on_failed)
        client.notice.connect(self._on_notice)
        client.stopped.connect(self._on_stopped)
        client.responding_changed.connect(self._on_responding)
        jobs.done.connect(self._on_job_done)
        jobs.failed.connect(self._on_job_failed)

    def _on_ready(self, event: m.Ready) -> None:
        devices = ", ".join(f"{d.name} {d.title}" for d in event.devices)
        _log.info("engine %s ready, process %d, %s", event.engine_version, event.pid, devices)

    def _on_loaded(self, event: m.Loaded) -> None:
        model = event.model
        _log.info(
            "loaded %s in %.2f s: %s, %d experts of %d bytes",
            model.name,
            model.load_s,
            model.quant,
            model.num_records,
            model.record_bytes,
        )

    def _on_unloaded(self) -> None:
        _log.info("model unloaded")

    def _on_finished(self, event: m.Finished) -> None:
        _log.info(
            "%s ended (%s): %d tokens, %.1f tok/s, first after %.2f s, hit %.0f %%",
            event.id,
            event.reason.value,
            event.usage.reply_tokens,
            event.trace.decode_tokens_per_s,
            event.trace.ttft_s,
            100 * event.trace.hit_share,
        )

    def _on_resized(self, event: m.ResizeApplied) -> None:
        _log.info(
            "%s applied: %d expert slots, %d KV tokens, pause %.1f ms, %d evicted",
            event.id or "growth of the context",
            event.expert_slots,
            event.kv_tokens,
            event.pause_ms,
            event.evicted,
        )

    def _on_refused(self, event: m.ResizeRefused) -> None:
        _log.warning("%s refused: %s", event.id, event.reason)

    def _on_failed(self, event: m.Error) -> None:
        level = logging.INFO if event.code is ErrorCode.CANCELLED else logging.ERROR
        _log.log(level, "%s failed (%s): %s", event.id or "engine", event.code.value, event.message)

    def _on_notice(self, event: m.Notice) -> None:
        level = logging.WARNING if event.level == "warning" else logging.INFO
        _log.log(level, "notice %s: %s", event.code, event.message)

    def _on_stopped(self, outcome: ProcessOutcome) -> None:
        level = logging.ERROR if outcome.unexpected else logging.INFO
        _log.log(level, "engine gone: %s", outcome.sentence)

    def _on_responding(self, responding: bool) -> None:
        if responding:
            _log.info("the engine answers again")
        else:
            _log.warning("the engine does not answer")

    def _on_job_done(self, job_id: str, event: m.JobDone) -> None:
        _log.info("%s (%s) done", job_id, event.job)

    def _on_job_failed(self, job_id: str, event: m.Error) -> None:
        level = logging.INFO if event.code is ErrorCode.CANCELLED else logging.ERROR
        _log.log(level, "%s failed (%s): %s", job_id, event.code.value, event.message)
