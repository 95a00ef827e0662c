"""`python -m app --smoke DIR`: the real app, the real engine, every part once.

Writes a picture of every page in both tones and `smoke.json` into DIR; the exit code is not 0 if a
step failed, and stderr names it. Without a display Qt draws off screen. Everything the run writes
lies below DIR, unless a data root was given. A shell without the engine's libraries tries its
window alone.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil
from PySide6.QtWidgets import QApplication

from app.application import PAGES, make_application
from app.main import Desktop
from app.services.chat_records import ChatId
from app.services.diagnostics import Diagnostics
from app.services.log_ring import LogRing
from app.services.settings import Environment
from app.services.tidy import Collector
from app.smoke_tls import speak_tls
from app.smoke_wait import StepFailed, Waiter
from app.theme import MODES
from engine.protocol import messages as m

PROMPT = "Tell me a long story about a small boat and the sea."
SHORT_PROMPT = "Describe a quiet winter morning."
POLICY_PROMPT = "What can be seen from a lighthouse?"
SEED, MIN_TOKENS, MAX_TOKENS, SHORT_TOKENS = 7, 120, 256, 48
# While the reply is written: from this token on, this share of all slots.
MOVES = ((20, 1.0), (70, 0.25), (120, 0.6))
SHARES = (("minimum", 0.0), ("25 %", 0.25), ("50 %", 0.5), ("100 %", 1.0))
EXIT_FAILED = 1


class Smoke:
    """The steps, in order; each fills its part of `facts`.

    Args:
        desktop: the app, not yet shown.
        folder: where pictures and facts go.
    """

    def __init__(self, desktop: Desktop, folder: Path) -> None:
        self._app = desktop
        self._folder = folder
        self._client = desktop.services.client
        self._wait = Waiter(self._client)
        self._chat_id: ChatId | None = None
        self.facts: dict[str, Any] = {}
        self.failures: list[str] = []

    def run(self) -> None:
        """Do all steps; what fails is noted, what needs no model goes on."""
        is_window_alone = self._client.process.program.is_missing
        for name, step, needs in (
            ("window", self._show_window, ""),
            ("tls", self._speak_tls, ""),
            ("model", self._load_model, "engine"),
            ("reply", self._reply_with_moves, "model"),
            ("same reply", self._same_reply, "model"),
            ("arena", self._arena_sizes, "model"),
            ("policies", self._policies, "model"),
            ("profiler", self._profile, "engine"),
            ("pages", self._pictures, ""),
            ("quit", self._quit, ""),
        ):
            if needs and is_window_alone:
                self.facts.setdefault("not_tried", []).append(name)
                continue
            if needs == "model" and self._client.model is None:
                self.failures.append(f"{name}: skipped, no model is loaded.")
                continue
            begun = time.monotonic()
            try:
                step()
            except StepFailed as problem:
                self.failures.append(f"{name}: {problem}")
            took = time.monotonic() - begun
            self.facts.setdefault("step_s", {})[name] = round(took, 2)
            sys.stderr.write(f"smoke: {name} took {took:.1f} s\n")

    # --- steps

    def _show_window(self) -> None:
        self._app.services.settings.set(reduced_motion=True, theme="dark")
        self._app.show("chat")
        QApplication.processEvents()
        self.facts["startup_ms"] = round((time.time() - psutil.Process().create_time()) * 1000)
        self._need(self._app.window.isVisible(), "The window is not visible.")

    def _speak_tls(self) -> None:
        self.facts["tls"] = speak_tls()

    def _load_model(self) -> None:
        client, session, begun = self._client, self._app.vm.session, time.monotonic()

        def is_over() -> bool:
            return client.model is not None or is_refused()

        def is_refused() -> bool:
            return session.trouble is not None and session.trouble.kind == "load"

        self._wait.until(is_over, session.changed, "The load of the built-in model", 240)
        if is_refused() and session.trouble is not None:
            trouble = session.trouble
            raise StepFailed(f"{trouble.sentence} {trouble.hint}".strip())
        if client.last_status is None:
            self._wait.signal(client.status, "A status of the engine", 10)
        self.facts["load_s"] = round(time.monotonic() - begun, 2)
        self.facts["model"] = msgspec.to_builtins(client.model)
        self.facts["devices"] = msgspec.to_builtins(client.devices)

    def _reply_with_moves(self) -> None:
        self._resize_to(0.25)
        moves = _Moves(self._app, self._experts())
        text, end = self._say(PROMPT, MAX_TOKENS)
        moves.stop()
        self._chat_id = self._app.vm.chat.talk.chat.id
        self.facts["reply"] = text
        self.facts["reply_tokens"] = end.usage.reply_tokens
        self.facts["tok_s"] = round(end.trace.decode_tokens_per_s, 2)
        self.facts["ttft_s"] = round(end.trace.ttft_s, 3)
        self.facts["resizes"] = moves.done
        self._need(
            end.usage.reply_tokens >= MIN_TOKENS,
            f"The reply has {end.usage.reply_tokens} tokens, fewer than {MIN_TOKENS}.",
        )
        kinds = {move["kind"] for move in moves.done}
        self._need(
            kinds == {"grow", "shrink"} and len(moves.done) == len(MOVES),
            f"Of {len(MOVES)} resizes during the reply {len(moves.done)} were applied: {kinds}.",
        )

    def _same_reply(self) -> None:
        text, end = self._say(PROMPT, MAX_TOKENS)
        same = bool(text) and text == self.facts.get("reply")
        self.facts["same_without_resizes"] = same
        self.facts["tok_s_without_resizes"] = round(end.trace.decode_tokens_per_s, 2)
        self._need(same, "The seeded reply without resizes is another text.")

    def _arena_sizes(self) -> None:
        rows, hits = [], []
        for name, share in SHARES:
            applied = self._resize_to(share)
            _, end = self._say(SHORT_PROMPT, SHORT_TOKENS)
            pool = self._experts()
            hits.append(end.trace.hit_share)
            rows.append(
                {
                    "size": name,
                    "slots": pool.units,
                    "record_bytes": pool.unit_bytes,
                    "arena_bytes": pool.used_bytes,
                    "hit_share": round(end.trace.hit_share, 4),
                    "tok_s": round(end.trace.decode_tokens_per_s, 2),
                }
            )
            self._need(
                pool.used_bytes == pool.units * pool.unit_bytes and pool.units == applied,
                f"At {name} the arena has {pool.used_bytes} bytes for {pool.units} slots.",
            )
        self.facts["arena"] = rows
        self._need(
            hits == sorted(hits) and hits[-1] > hits[0],
            f"The hit rate does not rise with the cache: {hits}.",
        )

    def _policies(self) -> None:
        self._resize_to(0.25)
        self.facts["policies"] = {}
        for policy in (m.MissPolicy.FILL_ONLY, m.MissPolicy.CPU_ONLY, m.MissPolicy.SPLIT):
            self._choose_policy(policy)
            before = self._totals()
            _, end = self._say(POLICY_PROMPT, SHORT_TOKENS)
            after = self._totals()
            counts = {
                name: getattr(after, f"total_{name}") - getattr(before, f"total_{name}")
                for name in ("hits", "fills", "cpu")
            }
            self.facts["policies"][policy.value] = counts | {
                "tok_s": round(end.trace.decode_tokens_per_s, 2)
            }
            fine = {
                m.MissPolicy.FILL_ONLY: counts["fills"] > 0 and counts["cpu"] == 0,
                m.MissPolicy.CPU_ONLY: counts["cpu"] > 0 and counts["fills"] == 0,
                m.MissPolicy.SPLIT: counts["fills"] + counts["cpu"] > 0,
            }
            self._need(fine[policy], f"With {policy} the counters are {counts}.")

    def _profile(self) -> None:
        jobs, profiler = self._app.services.jobs, self._app.vm.profiler
        failed: list[str] = []
        jobs.failed.connect(lambda _, error: failed.append(error.message))
        self._wait.signal(
            jobs.idle, "The quick profiler run", 240, act=lambda: profiler.run("quick")
        )
        self._need(not failed, f"The profiler failed: {' '.join(failed)}")
        done = [job for job in jobs.jobs() if job.job == "profile"]
        self.facts["profile"] = done[-1].result if done else {}

    def _pictures(self) -> None:
        app = self._app
        if self._chat_id is not None:
            app.vm.chat.open_chat(self._chat_id)
        pictures = []
        for mode in [mode for mode in MODES if mode != "system"]:
            app.services.settings.set(theme=mode)
            for page in PAGES:
                app.window.show_page(page)
                QApplication.processEvents()
                path = self._folder / f"{page}-{mode}.png"
                self._need(app.window.page == page, f"The page {page} does not come up.")
                self._need(app.window.grab().save(str(path)), f"{path} cannot be written.")
                pictures.append(path.name)
        self.facts["pictures"] = pictures

    def _quit(self) -> None:
        begun = time.monotonic()
        self._wait.forgive()
        self._wait.signal(self._app.finished, "The end of the app", 5, act=self._app.quit)
        self.facts["quit_ms"] = round((time.monotonic() - begun) * 1000)
        program = self._client.process.program
        fine = {f"engine gone: {program.start_problem('')}"} if program.is_missing else set()
        lines = self._app.services.ring.lines()
        errors = [line.text for line in lines if line.level == "error" and line.text not in fine]
        self.facts["log_errors"] = errors
        self._need(not errors, f"The log has {len(errors)} errors, first: {errors[:1]}")

    # --- parts of steps

    def _need(self, condition: bool, sentence: str) -> None:
        if not condition:
            raise StepFailed(sentence)

    def _experts(self) -> m.Pool:
        status = self._client.last_status
        pools = status.devices[0].pools if status and status.devices else ()
        pool = next((pool for pool in pools if pool.name == "experts"), None)
        if pool is None:
            raise StepFailed("The engine's status has no expert pool.")
        return pool

    def _resize_to(self, share: float) -> int:
        """Bring the cache to a share of what is possible, while nothing runs. Returns the slots."""
        performance = self._app.vm.performance
        slots = slots_at(self._experts(), share)
        shown = performance.applied
        if shown is None:
            raise StepFailed("The performance page has no division to show.")
        if shown.expert_slots != slots:
            self._wait.signal(
                self._client.status,
                f"The resize to {slots} slots",
                30,
                lambda _: self._experts().units == slots,
                lambda: performance.release(shown.with_slots(slots)),
            )
        return slots

    def _choose_policy(self, policy: m.MissPolicy) -> None:
        def holds(status: m.Status) -> bool:
            return status.policy is policy

        def ask() -> None:
            self._client.set_policy(policy)

        self._wait.signal(self._client.status, f"The policy {policy}", 30, holds, ask)

    def _say(self, text: str, max_tokens: int) -> tuple[str, m.Finished]:
        """Send a message in a new chat, seeded, and wait for the whole reply."""
        chat = self._app.vm.chat
        chat.new_chat()
        chat.change_sampling(seed=SEED, max_tokens=max_tokens)
        (end,) = self._wait.signal(
            self._client.finished, "The end of the reply", 180, act=lambda: chat.send(text)
        )
        assert isinstance(end, m.Finished)
        if end.reason not in (m.FinishReason.LENGTH, m.FinishReason.STOP):
            cause = f"The reply ended with '{end.reason}'."
            raise StepFailed(f"{self._wait.last_error} {cause}".strip())
        last = chat.talk.messages[-1]
        return (chat.talk.message(last.id) or last).text, end

    def _totals(self) -> m.Stats:
        """Return sums that count everything up to now: the second frame from here."""
        for _ in range(2):
            (stats,) = self._wait.signal(self._client.stats, "A stats frame", 10)
        assert isinstance(stats, m.Stats)
        return stats


class _Moves:
    """Resizes through the performance page while a reply is written."""

    def __init__(self, app: Desktop, pool: m.Pool) -> None:
        self._app, self._pool = app, pool
        self._tokens, self._asked = 0, list(MOVES)
        self._released: tuple[float, int, int] | None = None
        self.done: list[dict[str, Any]] = []
        client = app.services.client
        client.delta.connect(self._on_delta)
        client.resize_applied.connect(self._on_applied)

    def stop(self) -> None:
        """The reply is over: what is not applied by now does not count."""
        client = self._app.services.client
        client.delta.disconnect(self._on_delta)
        client.resize_applied.disconnect(self._on_applied)

    def _on_delta(self, delta: m.TokenDelta) -> None:
        self._tokens += delta.num_tokens
        if self._asked and self._released is None and self._tokens >= self._asked[0][0]:
            _, share = self._asked.pop(0)
            performance = self._app.vm.performance
            now = performance.applied
            if now is not None:
                slots = slots_at(self._pool, share)
                self._released = (time.monotonic(), now.expert_slots, slots)
                performance.release(now.with_slots(slots))

    def _on_applied(self, event: m.ResizeApplied) -> None:
        if self._released is None or event.taken_slots:
            return
        at, before, asked = self._released
        self._released = None
        self.done.append(
            {
                "kind": "grow" if asked > before else "shrink",
                "at_token": self._tokens,
                "released_to_applied_ms": round((time.monotonic() - at) * 1000, 1),
                "pause_ms": round(event.pause_ms, 3),
                "slots_before": before,
                "slots": event.expert_slots,
                "bytes": event.expert_bytes,
                "evicted": event.evicted,
            }
        )


def slots_at(pool: m.Pool, share: float) -> int:
    """Return the slots at a share of the most, at least the least; 0 = the least."""
    return max(pool.min_units, round(pool.max_units * share))


def run_smoke(environment: Environment, folder: str, has_display: bool | None = None) -> int:
    """Run all steps. Returns the exit code: 0 only if every step was well."""
    out = Path(folder).absolute()
    out.mkdir(parents=True, exist_ok=True)
    shown = environment.has_display if has_display is None else has_display
    app = make_application(offscreen=not shown)
    ring = LogRing()
    diagnostics, collector = Diagnostics(ring, environment.root.logs), Collector()
    smoke = Smoke(Desktop(environment, ring), out)
    smoke.run()
    _write(out / "smoke.json", smoke)
    collector.close()
    diagnostics.close()
    app.quit()
    for failure in smoke.failures:
        sys.stderr.write(f"smoke failed at {failure}\n")
    return EXIT_FAILED if smoke.failures else 0


def _write(path: Path, smoke: Smoke) -> None:
    facts = {"ok": not smoke.failures, "failures": smoke.failures, **smoke.facts}
    path.write_text(json.dumps(facts, indent=2, ensure_ascii=False, default=str), "utf-8")
