"""A stand-in for the engine program: speaks the protocol, computes nothing, misbehaves on request.

Run as a script; needs no torch and starts in some 0.1 s. Every oddity that the app must survive is
an option: slow start, crash, hang, stray prints, refused resizes, failing jobs. See `options()`;
FAKE_ENGINE_ARGS in the environment come before the arguments.
"""

import argparse
import os
import queue
import signal
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from engine.protocol import messages as m
from engine.protocol.errors import EngineError, ErrorCode, ExitCode
from engine.protocol.framing import LineFramer
from tests.support.fake_facts import (
    KV_BYTES,
    LAYERS,
    MAX_KV,
    MAX_SLOTS,
    MIN_KV,
    MIN_SLOTS,
    RECORD_BYTES,
    TOP_K,
    TOTAL_BYTES,
    Out,
    cache_map,
    card_info,
    device_info,
    hang,
    log,
    model_info,
    pieces,
    status_frame,
    used_bytes,
)
from tests.support.fake_jobs import run_job


def options(arguments: list[str]) -> argparse.Namespace:
    """Read the script's arguments; unknown ones are an error."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--ready-delay", type=float, default=0.0, help="seconds before Ready; heartbeats run")
    add("--silent-start", type=float, default=0.0, help="seconds before the first byte")
    add("--load-delay", type=float, default=0.0, help="seconds of a load, with progress")
    add("--load-error", default="", help="error code that every Load ends with")
    add("--cards", type=int, default=0, help="cards beside the CPU, each larger than the last")
    add("--card-error", default="", help="error code that every Load on a card ends with")
    add("--card-crash", action="store_true", help="die of every Load on a card")
    add("--tokens", type=int, default=40, help="tokens of a reply; max_tokens may cut it")
    add("--reasoning", type=int, default=0, help="how many of them are reasoning")
    add("--rate", type=float, default=0.0, help="tokens per second; 0 = at once")
    add("--first-token", type=float, default=0.0, help="seconds to the first token")
    add("--reply", default="words", help="'words', 'prose', 'code', or the text itself")
    add("--crash-at", type=int, default=-1, help="abort before this token of a reply")
    add("--exit-at", type=int, default=-1, help="exit with --exit-code before this token")
    add("--exit-code", type=int, default=int(ExitCode.DEVICE))
    add("--exit-error", default="device", help="code of the JSON error line on stderr; '' = none")
    add("--hang-at", type=int, default=-1, help="stop doing anything before this token")
    add("--hang-load", action="store_true", help="stop doing anything on Load")
    add("--deaf", action="store_true", help="ignore Shutdown, EOF and SIGTERM")
    add("--crash-start", action="store_true", help="abort at once")
    add("--version", type=int, default=m.PROTOCOL_VERSION)
    add("--stray", action="store_true", help="print lines that are no messages")
    add("--noise", type=int, default=0, help="lines on stderr at the start")
    add("--heartbeat", type=float, default=1.0, help="seconds; 0 = none")
    add("--stats", type=float, default=0.5, help="seconds; 0 = none")
    add("--resize", default="applied", choices=("applied", "refused", "hold"))
    add("--drain-s", type=float, default=0.0, help="taken, as by the real one; not used")
    add("--job", default="")
    add("--spec", default="{}")
    add("--job-steps", type=int, default=10)
    add("--job-seconds", type=float, default=0.0)
    add("--job-total", type=int, default=10_000_000)
    add("--job-end", default="done", choices=("done", "error", "crash", "hang", "silent"))
    return parser.parse_args(arguments)


@dataclass
class Reply:
    """One request that is being answered."""

    command: m.Generate
    pieces: list[str]
    begun: float
    due: float
    sent: int = 0


@dataclass
class FakeEngine:
    """The state machine behind the pipe."""

    opts: argparse.Namespace
    out: Out
    slots: int = 64
    kv_tokens: int = 2_048
    policy: m.MissPolicy = m.MissPolicy.SPLIT
    model: m.ModelInfo | None = None
    replies: list[Reply] = field(default_factory=list)
    held: list[m.Resize] = field(default_factory=list)
    loading: tuple[m.Load, float, float] | None = None
    total_tokens: int = 0
    counts: dict[str, float] = field(
        default_factory=lambda: {"hit_share": 0.0, "fill_share": 0.0, "cpu_share": 0.0}
    )
    begun: float = field(default_factory=time.monotonic)

    # --- commands

    def handle(self, command: m.Command) -> bool:
        """Act on one command. Returns False when the process shall end."""
        match command:
            case m.Hello():
                self._hello()
            case m.Load():
                self._load(command)
            case m.Unload():
                self.model = None
                self.out.send(m.Unloaded(id=command.id), self.status(), self.state())
            case m.Generate():
                self._generate(command)
            case m.Cancel():
                self._cancel(command.id)
            case m.Resize():
                self._resize(command)
            case m.SetPolicy():
                self.policy = command.policy
                self.out.send(self.status(command.id))
            case m.CountTokens():
                text = "".join(p.text for message in command.messages for p in message.parts)
                self.out.send(m.TokenCount(id=command.id, num_tokens=len(text.split())))
            case m.GetStatus():
                self.out.send(self.status(command.id))
            case m.Shutdown():
                return self._shutdown()
        return True

    def _hello(self) -> None:
        if self.opts.ready_delay:
            until = time.monotonic() + self.opts.ready_delay
            while time.monotonic() < until:
                self.out.send(m.Heartbeat(uptime_s=time.monotonic() - self.begun))
                time.sleep(min(0.1, self.opts.ready_delay))
        if self.opts.stray:
            self.out.raw(b'a stray print\n{"type": "nonsense"}\n')
        self.out.send(
            m.Ready(
                protocol_version=self.opts.version,
                engine_version="fake",
                pid=os.getpid(),
                devices=(device_info(), *(card_info(i) for i in range(self.opts.cards))),
            ),
            self.state(),
        )

    def _load(self, command: m.Load) -> None:
        if self.opts.hang_load:
            hang()
        on_card = command.devices[0].startswith("cuda")
        if on_card and self.opts.card_crash:
            os._exit(3)
        if code := self.opts.load_error or (on_card and self.opts.card_error):
            self.out.send(
                m.Error(
                    code=ErrorCode(code),
                    message="The fake engine was told to refuse.",
                    hint="Choose another model.",
                    id=command.id,
                )
            )
            return
        if command.budget and command.budget.expert_slots:
            self.slots = min(MAX_SLOTS, max(MIN_SLOTS, command.budget.expert_slots))
        if command.budget and command.budget.kv_tokens:
            self.kv_tokens = min(MAX_KV, max(MIN_KV, command.budget.kv_tokens))
        self.policy = command.policy
        now = time.monotonic()
        self.loading = (command, now, now + self.opts.load_delay)
        self.out.send(self.state())

    def _generate(self, command: m.Generate) -> None:
        if self.model is None:
            self.out.send(
                m.Error(code=ErrorCode.INVALID_REQUEST, message="No model.", id=command.id),
                m.Finished(id=command.id, reason=m.FinishReason.ERROR),
            )
            return
        count = min(self.opts.tokens, command.sampling.max_tokens)
        now = time.monotonic()
        reply = Reply(command, pieces(self.opts.reply, count), now, now + self.opts.first_token)
        self.replies.append(reply)
        self.out.send(m.Started(id=command.id, prompt_tokens=12), self.state())

    def _cancel(self, request_id: str) -> None:
        if self.loading and self.loading[0].id == request_id:
            self.loading = None
            self.out.send(
                m.Error(code=ErrorCode.CANCELLED, message="Cancelled.", id=request_id), self.state()
            )
        for reply in [r for r in self.replies if r.command.id == request_id]:
            self._finish(reply, m.FinishReason.CANCELLED)

    def _resize(self, command: m.Resize) -> None:
        slots = self.slots if command.expert_slots is None else command.expert_slots
        kv = self.kv_tokens if command.kv_tokens is None else command.kv_tokens
        fits = MIN_SLOTS <= slots <= MAX_SLOTS and MIN_KV <= kv <= MAX_KV
        if command.preview:
            self.out.send(
                m.ResizePreview(
                    id=command.id,
                    kv_tokens=kv,
                    expert_slots=slots,
                    kv_bytes=kv * KV_BYTES,
                    expert_bytes=slots * RECORD_BYTES,
                    free_bytes=TOTAL_BYTES - used_bytes(slots, kv),
                    fits=fits,
                    reason="" if fits else "Outside the bounds.",
                )
            )
            return
        if not fits or self.opts.resize == "refused":
            self.out.send(
                m.ResizeRefused(
                    id=command.id,
                    reason="This chat already uses it.",
                    kv_tokens=self.kv_tokens,
                    expert_slots=self.slots,
                )
            )
            return
        self.out.send(m.ResizePending(id=command.id, waiting_for="the current step"))
        self.held.append(command)
        if self.opts.resize == "applied":
            self._apply_held()

    def _apply_held(self) -> None:
        for command in self.held:
            before = self.slots
            self.slots = self.slots if command.expert_slots is None else command.expert_slots
            self.kv_tokens = self.kv_tokens if command.kv_tokens is None else command.kv_tokens
            self.out.send(
                m.ResizeApplied(
                    id=command.id,
                    kv_tokens=self.kv_tokens,
                    expert_slots=self.slots,
                    kv_bytes=self.kv_tokens * KV_BYTES,
                    expert_bytes=self.slots * RECORD_BYTES,
                    pause_ms=1.5,
                    waited_ms=0.5,
                    evicted=max(0, before - self.slots),
                ),
                self.status(),
            )
        self.held.clear()

    def _shutdown(self) -> bool:
        if self.opts.deaf:
            log("INFO fake: deaf to Shutdown")
            return True
        for reply in list(self.replies):
            self._finish(reply, m.FinishReason.CANCELLED)
        return False

    # --- time

    def tick(self) -> float:
        """Do what is due. Returns the seconds until something is due again."""
        now = time.monotonic()
        waits = [0.5]
        if self.loading:
            waits.append(self._load_step(now))
        for reply in list(self.replies):
            waits.append(self._reply_step(reply, now))
        return max(0.0, min(waits))

    def _load_step(self, now: float) -> float:
        command, begun, end = self.loading or (m.Load(id="", model=""), now, now)
        total = MAX_SLOTS * RECORD_BYTES
        share = 1.0 if end <= begun else min(1.0, (now - begun) / (end - begun))
        self.out.send(
            m.Progress(
                id=command.id, stage="read", done_bytes=round(total * share), total_bytes=total
            )
        )
        if share < 1.0:
            return 0.05
        self.loading = None
        self.model = model_info(command)
        self.out.send(m.Loaded(id=command.id, model=self.model), self.status(), self.state())
        return 0.0

    def _reply_step(self, reply: Reply, now: float) -> float:
        rate = self.opts.rate
        ready = len(reply.pieces)
        if now < reply.due:
            return reply.due - now
        if rate:
            ready = min(ready, 1 + int((now - reply.due) * rate))
        self._trip(reply, ready)
        while reply.sent < ready:
            self._send_piece(reply)
        if reply.sent >= len(reply.pieces):
            long = len(reply.pieces) >= reply.command.sampling.max_tokens
            self._finish(reply, m.FinishReason.LENGTH if long else m.FinishReason.STOP)
            return 0.0
        return 1.0 / min(rate, 60.0) if rate else 0.0

    def _trip(self, reply: Reply, ready: int) -> None:
        """Send what comes before the planned accident, then have it."""
        for at, accident in (
            (self.opts.crash_at, self._crash),
            (self.opts.exit_at, self._exit),
            (self.opts.hang_at, hang),
        ):
            if 0 <= at <= ready and at <= len(reply.pieces):
                while reply.sent < at:
                    self._send_piece(reply)
                accident()

    def _crash(self) -> None:
        log("ERROR fake: aborting as told")
        if sys.platform == "win32":
            os._exit(3)
        signal.signal(signal.SIGABRT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGABRT)

    def _exit(self) -> None:
        if self.opts.exit_error:
            error = m.Error(
                code=ErrorCode(self.opts.exit_error), message="The fake device fell off the bus."
            )
            log(m.encode(error).decode().strip())
        os._exit(self.opts.exit_code)

    def _send_piece(self, reply: Reply) -> None:
        thinking = reply.sent < self.opts.reasoning
        self.out.send(
            m.TokenDelta(
                id=reply.command.id,
                kind="reasoning" if thinking else "text",
                text=reply.pieces[reply.sent],
            )
        )
        reply.sent += 1
        self.total_tokens += 1
        for name, share in self.shares().items():
            self.counts[name] += share * LAYERS * TOP_K

    def _finish(self, reply: Reply, reason: m.FinishReason) -> None:
        self.replies.remove(reply)
        took = max(1e-6, time.monotonic() - reply.due)
        self.out.send(
            m.Finished(
                id=reply.command.id,
                reason=reason,
                usage=m.Usage(prompt_tokens=12, reply_tokens=reply.sent),
                trace=m.Trace(
                    ttft_s=reply.due - reply.begun,
                    decode_s=took,
                    decode_tokens_per_s=self.opts.rate or reply.sent / took,
                    **self.shares(),
                ),
            ),
            self.state(),
        )
        self._apply_held()

    # --- events

    def shares(self) -> dict[str, float]:
        hit = self.slots / MAX_SLOTS
        fill = {m.MissPolicy.FILL_ONLY: 1.0, m.MissPolicy.CPU_ONLY: 0.0}.get(self.policy, 0.5)
        return {
            "hit_share": hit,
            "fill_share": (1 - hit) * fill,
            "cpu_share": (1 - hit) * (1 - fill),
        }

    def state(self) -> m.StateChanged:
        return m.StateChanged(state=self._state())

    def _state(self) -> m.EngineState:
        if self.loading:
            return m.EngineState.LOADING
        if self.model is None:
            return m.EngineState.IDLE
        return m.EngineState.GENERATING if self.replies else m.EngineState.READY

    def status(self, command_id: str = "") -> m.Status:
        return status_frame(
            self._state(),
            self.model,
            (self.slots, self.kv_tokens),
            self.policy,
            50 * len(self.replies),
            command_id,
        )

    def stats(self) -> tuple[m.Event, ...]:
        """The periodic frames of a loaded model."""
        if self.model is None:
            return ()
        running = len(self.replies)
        return (
            m.Stats(
                interval_s=self.opts.stats,
                running=running,
                decode_tokens_per_s=self.opts.rate if running else 0.0,
                fill_gbps=4.2 if running else 0.0,
                cpu_gbps=2.1 if running else 0.0,
                routes=LAYERS * TOP_K if running else 0,
                total_hits=round(self.counts["hit_share"]),
                total_fills=round(self.counts["fill_share"]),
                total_cpu=round(self.counts["cpu_share"]),
                total_tokens=self.total_tokens,
                context_used_tokens=12 + sum(r.sent for r in self.replies),
                context_capacity_tokens=self.kv_tokens,
                **self.shares(),
            ),
            cache_map(self.slots),
        )


def run_pipe(opts: argparse.Namespace) -> int:
    """Serve commands until Shutdown or the end of stdin."""
    out = Out()
    engine = FakeEngine(opts, out)
    inbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(inbox,), daemon=True).start()
    beat_due = stats_due = time.monotonic()
    while True:
        now = time.monotonic()
        if opts.heartbeat and now >= beat_due:
            out.send(m.Heartbeat(uptime_s=now - engine.begun))
            beat_due = now + opts.heartbeat
        if opts.stats and now >= stats_due:
            out.send(*engine.stats())
            stats_due = now + opts.stats
        dues = [beat_due - now] if opts.heartbeat else []
        dues += [stats_due - now] if opts.stats else []
        wait = max(0.0, min([engine.tick(), *dues]))
        try:
            line = inbox.get(timeout=wait)
        except queue.Empty:
            continue
        if line is None:
            if opts.deaf:
                hang()
            return int(ExitCode.OK)
        try:
            if not engine.handle(m.decode_command(line)):
                return int(ExitCode.OK)
        except EngineError as problem:
            out.send(m.error_event(problem))


def _read(inbox: "queue.SimpleQueue[bytes | None]") -> None:
    framer = LineFramer()
    while chunk := os.read(0, 65_536):
        for line in framer.feed(chunk):
            if isinstance(line, bytes):
                inbox.put(line)
    inbox.put(None)


def main(arguments: list[str]) -> int:
    """Run as engine or as job."""
    opts = options([*os.environ.get("FAKE_ENGINE_ARGS", "").split(), *arguments])
    if opts.deaf and sys.platform != "win32":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for i in range(opts.noise):
        log(f"INFO fake: line {i}")
    if opts.crash_start:
        log("ImportError: the fake library is missing")
        return 1
    time.sleep(opts.silent_start)
    return run_job(opts) if opts.job else run_pipe(opts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
