"""Facts of chats and replies in words: times, groups, stats lines, causes, notices. Pure."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from app.services.chat_records import (
    Chat,
    Failure,
    Message,
    MessageState,
    Reasoning,
    StoreNotice,
)
from app.wording import Phrase, figures, tr, tr_count
from app.wording.sentences import error_words
from engine.protocol.errors import ErrorCode

DOT = "  ·  "
LEAST_STEP_S = 0.2  # of the speed along a reply
Group = Literal["pinned", "today", "yesterday", "earlier"]
GROUPS: tuple[tuple[Group, str], ...] = (
    ("pinned", tr("Pinned")),
    ("today", tr("Today")),
    ("yesterday", tr("Yesterday")),
    ("earlier", tr("Earlier")),
)


REASONING_WORDS: dict[Reasoning, Phrase] = {
    "": tr("As the model does"),
    "off": tr("Off"),
    "low": tr("Low"),
    "medium": tr("Medium"),
    "high": tr("High"),
}


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a reply failed, ready to be shown.

    Attributes:
        title: what happened.
        cause: the engine's sentence with its figures.
        hint: what to do.
        page: the page that holds the setting in question, or "".
    """

    title: str
    cause: str
    hint: str = ""
    page: str = ""


def group_of(chat: Chat, now: float) -> Group:
    """Return the list section of a chat at the time `now` (local days)."""
    if chat.pinned:
        return "pinned"
    today = time.localtime(now)[:3]
    day = time.localtime(chat.updated)[:3]
    if day >= today:
        return "today"
    # The day before holds the moment that lies one second before this day began.
    midnight = time.mktime((*today, 0, 0, 0, 0, 0, -1))
    return "yesterday" if day == time.localtime(midnight - 1)[:3] else "earlier"


def clock_text(moment: float, now: float) -> str:
    """Return the time of day; with the date if it was another day."""
    then = time.localtime(moment)
    if then[:3] == time.localtime(now)[:3]:
        return time.strftime("%H:%M", then)
    return time.strftime("%Y-%m-%d %H:%M", then)


def stats_text(message: Message) -> str:
    """Return the stats line of a finished reply; rates leave out prefill and waiting."""
    facts, trace = message.facts, message.facts.trace
    parts: list[str] = []
    if trace is not None and trace.decode_tokens_per_s > 0:
        parts.append(tr("{rate} tok/s", rate=figures.rate(trace.decode_tokens_per_s)))
    if trace is not None and trace.ttft_s > 0:
        parts.append(tr("TTFT {seconds} s", seconds=seconds_text(trace.ttft_s)))
    if facts.usage.reply_tokens:
        parts.append(tr_count("{count} token", "{count} tokens", facts.usage.reply_tokens))
    if trace is not None and has_routes(message):
        parts.append(tr("hit {share} %", share=round(trace.hit_share * 100)))
    return DOT.join(parts)


def has_routes(message: Message) -> bool:
    """Whether the trace knows where experts ran."""
    trace = message.facts.trace
    return trace is not None and trace.hit_share + trace.fill_share + trace.cpu_share > 0


def seconds_text(seconds: float) -> str:
    """Return seconds with as many figures as matter."""
    return f"{seconds:.2f}" if seconds < 1 else f"{seconds:.1f}"


def thought_text(message: Message, running: bool) -> str:
    """Return the head of the reasoning fold."""
    facts = message.facts
    if running:
        return tr("Thinking")
    if facts.thought_s < 0.05:
        return tr("Reasoning")
    seconds = f"{facts.thought_s:.0f}" if facts.thought_s >= 10 else f"{facts.thought_s:.1f}"
    if not facts.thought_tokens:
        return tr("Thought for {seconds} s", seconds=seconds)
    return tr(
        "Thought for {seconds} s · {tokens}",
        seconds=seconds,
        tokens=tr_count("{count} token", "{count} tokens", facts.thought_tokens),
    )


def incomplete_text(message: Message) -> str:
    """Say why a reply has no end, for the chip below it; "" if it is whole."""
    if message.state is MessageState.INTERRUPTED:
        return tr("Reply is incomplete")
    if message.state is MessageState.STOPPED:
        return tr("Stopped")
    if message.facts.reason == "length":
        return tr("Length limit reached")
    return ""


def problem_of(failure: Failure) -> Problem:
    """Return title, cause and next step of a failed reply. The code decides, never the message."""
    words = error_words(failure.code)
    # A prompt that is too long is refused as an invalid request: both lead to the split.
    page = "performance" if failure.code in (ErrorCode.BUDGET, ErrorCode.INVALID_REQUEST) else ""
    return Problem(words.title, failure.message or words.cause, failure.hint or words.action, page)


def notice_text(notice: StoreNotice) -> str:
    """Return the sentence for something that happened to the chat database."""
    name = notice.path.name
    sentences = {
        "damaged": tr(
            "The chat file was damaged. It is kept as {name}, and a new one was begun.", name=name
        ),
        "newer": tr("{name} was written by a newer version and is left alone.", name=name),
        "memory": tr(
            "The disk does not take chats at the moment. New text is kept in memory until it does."
        ),
        "saved": tr("All chats are on disk again."),
        "rescued": tr("Another program changed the chats. Yours are saved in {name}.", name=name),
    }
    return sentences[notice.code]


def rates_along(points: Sequence[tuple[float, int]], most: int = 32) -> tuple[float, ...]:
    """Return the speed along a reply, tokens/s, from moments and token sums; () if too short.

    Over equal times: tokens come in bursts, and a burst is no speed.
    """
    span = points[-1][0] - points[0][0] if points else 0.0
    steps = min(most, int(span / LEAST_STEP_S))
    if len(points) < 4 or steps < 2:
        return ()
    step, sums, place = span / steps, [float(points[0][1])], 0
    for i in range(1, steps + 1):
        at = points[0][0] + i * step
        while place < len(points) - 2 and points[place + 1][0] < at:
            place += 1
        (t0, n0), (t1, n1) = points[place], points[place + 1]
        part = (at - t0) / (t1 - t0) if t1 > t0 else 1.0
        sums.append(n0 + min(1.0, part) * (n1 - n0))
    return tuple(round((after - before) / step, 2) for before, after in pairwise(sums))
