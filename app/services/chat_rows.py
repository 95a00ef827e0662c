"""Rows of the chat database to records and back. A damaged cell costs that cell, never the chat."""

import msgspec

from app.services.chat_records import (
    REASONING,
    Chat,
    ChatId,
    Message,
    MessageId,
    MessageState,
    Reasoning,
    ReplyFacts,
    Role,
)
from app.services.chat_schema import parts_from
from engine.protocol.messages import Part, Sampling

CHAT_COLUMNS = (
    "id, title, pinned, created, updated, system_prompt, sampling, draft, leaf,"
    " files, queued, preset, reasoning"
)
MESSAGE_COLUMNS = "id, chat, parent, role, parts, model, state, facts, created"


def chat_from(row: tuple[object, ...]) -> Chat:
    """Return the chat of a row of `CHAT_COLUMNS`."""
    number, title, pinned, created, updated, prompt, sampling, draft, leaf, *more = row
    files, queued, preset, reasoning = (str(value) for value in more)
    return Chat(
        id=ChatId(int(str(number))),
        title=str(title),
        pinned=bool(pinned),
        created=float(str(created)),
        updated=float(str(updated)),
        system_prompt=str(prompt),
        sampling=_sampling(sampling),
        draft=str(draft),
        leaf=None if leaf is None else MessageId(int(str(leaf))),
        files=draft_parts(files),
        queued=draft_parts(queued),
        preset=preset,
        reasoning=reasoning_from(reasoning),
    )


def message_from(row: tuple[object, ...]) -> Message:
    """Return the message of a row of `MESSAGE_COLUMNS`."""
    number, chat, parent, role, parts, model, state, facts, created = row
    return Message(
        id=MessageId(int(str(number))),
        chat_id=ChatId(int(str(chat))),
        parent=None if parent is None else MessageId(int(str(parent))),
        role=_role(role),
        parts=parts_from(str(parts)),
        model=str(model),
        state=MessageState(str(state)),
        facts=_facts(str(facts)),
        created=float(str(created)),
    )


def reasoning_from(value: object) -> Reasoning:
    """Return a choice of reasoning; anything unknown leaves it to the model."""
    return next((choice for choice in REASONING if choice == value), "")


def draft_parts(stored: str) -> tuple[Part, ...]:
    """Read what was attached or waits; a damaged cell holds nothing."""
    try:
        return msgspec.json.decode(stored, type=tuple[Part, ...])
    except msgspec.MsgspecError:
        return ()


def _role(value: object) -> Role:
    return "user" if value == "user" else "assistant"


def _facts(stored: str) -> ReplyFacts:
    try:
        return msgspec.json.decode(stored, type=ReplyFacts)
    except msgspec.MsgspecError:  # figures only: the reply itself is elsewhere
        return ReplyFacts()


def _sampling(stored: object) -> Sampling | None:
    if stored is None:
        return None
    try:
        return msgspec.json.decode(str(stored), type=Sampling)
    except msgspec.MsgspecError:
        return None


def sampling_json(value: Sampling | None) -> str | None:
    """Return sampling as it is stored; None stays NULL."""
    return None if value is None else encode(value)


def encode(value: object) -> str:
    """Return a struct, or a tuple of them, as JSON text."""
    return msgspec.json.encode(value).decode()
