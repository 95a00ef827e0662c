"""Chats from files: our own export with every branch, and the JSON of other programs. No Qt.

Understood are `freetoken-chat` files, lists of `{"role", "content"}` as the OpenAI API takes them
(alone, or as `messages` of an object), and conversation files of LM Studio. What a file holds
besides is left out; a file without a message is refused in words.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from app.services.chat_export import FORMAT, VERSION
from app.services.chat_records import (
    Chat,
    ChatId,
    Message,
    MessageId,
    MessageState,
    ReplyFacts,
    Role,
    text_parts,
    title_from,
)
from app.services.chat_rows import reasoning_from
from app.wording import Phrase, figures, tr
from engine.protocol.errors import InvalidRequest
from engine.protocol.messages import Part, Sampling

MAX_BYTES = 64 * 2**20
_ROLES: dict[str, Role] = {"user": "user", "human": "user", "assistant": "assistant"}
_MOMENT = "%Y-%m-%dT%H:%M:%S%z"


@dataclass(frozen=True, slots=True)
class Found:
    """A chat of a file, ready for `ChatStore.add_whole`. Ids are those of the file."""

    chat: Chat
    messages: tuple[Message, ...]
    shown: tuple[MessageId, ...]


@dataclass(frozen=True, slots=True)
class NotFound:
    """Why a file is not imported, as a sentence that names it."""

    sentence: Phrase


def read_chat_file(path: Path, now: float) -> Found | NotFound:
    """Read one file; safe on a thread. `now` is the time of chats that have none."""
    try:
        if path.stat().st_size > MAX_BYTES:
            most = figures.file_size(MAX_BYTES)
            sentence = tr("{name} is larger than {most}.", name=path.name, most=most)
            return NotFound(sentence)
        raw = msgspec.json.decode(path.read_bytes().removeprefix(b"\xef\xbb\xbf"))
    except OSError:
        return NotFound(tr("{name} cannot be read.", name=path.name))
    except msgspec.MsgspecError:
        return NotFound(tr("{name} is no JSON file.", name=path.name))
    return chat_from_json(raw, path, now)


def chat_from_json(raw: object, path: Path, now: float) -> Found | NotFound:
    """Return the chat of a decoded file; `path` names it in sentences and titles."""
    value: dict[str, Any] = raw if isinstance(raw, dict) else {"messages": raw}
    if value.get("format") == FORMAT and _int(value.get("version")) > VERSION:
        return NotFound(tr("{name} was written by a newer version.", name=path.name))
    found = _ours(value, now) if value.get("format") == FORMAT else _foreign(value, now)
    if not found.messages:
        return NotFound(tr("{name} holds no chat that can be read.", name=path.name))
    if not found.chat.title:
        words = next((m.text for m in found.messages if m.text.strip()), path.stem)
        return replace(found, chat=replace(found.chat, title=title_from(words)))
    return found


# --- our own export -------------------------------------------------------------------------------


def _ours(value: dict[str, Any], now: float) -> Found:
    messages: list[Message] = []
    shown: list[MessageId] = []
    known: set[int] = set()
    for entry in _dicts(value.get("messages")):
        message = _our_message(entry, now)
        if message is None or message.id in known:
            continue
        if message.parent not in known:  # its parent is damaged: it begins a branch of its own
            message = replace(message, parent=None)
        known.add(message.id)
        messages.append(message)
        if entry.get("shown") is True and message.parent == (shown[-1] if shown else None):
            shown.append(message.id)
    if not shown and messages:
        shown = _path_to(messages[-1], messages)
    created = _seconds(value.get("created"), now)
    chat = Chat(
        ChatId(0),
        title=_text(value.get("title")),
        created=created,
        updated=max((m.created for m in messages), default=created),
        system_prompt=_text(value.get("system_prompt")),
        sampling=_sampling(value.get("sampling")),
        preset=_text(value.get("preset")),
        reasoning=reasoning_from(value.get("reasoning")),
    )
    return Found(chat, tuple(messages), tuple(shown))


def _our_message(entry: dict[str, Any], now: float) -> Message | None:
    parts = _converted(entry.get("parts"), tuple[Part, ...])
    role, number, parent = _text(entry.get("role")), entry.get("id"), entry.get("parent")
    if parts is None or role not in _ROLES or not isinstance(number, int):
        return None
    state = _converted(entry.get("state"), MessageState) or MessageState.DONE
    return Message(
        id=MessageId(number),
        chat_id=ChatId(0),
        parent=MessageId(parent) if isinstance(parent, int) else None,
        role=_ROLES[role],
        parts=parts,
        model=_text(entry.get("model")),
        state=MessageState.INTERRUPTED if state is MessageState.PARTIAL else state,
        facts=_converted(entry.get("facts"), ReplyFacts) or ReplyFacts(),
        created=_seconds(entry.get("created"), now),
    )


def _path_to(leaf: Message, messages: Sequence[Message]) -> list[MessageId]:
    by_id = {message.id: message for message in messages}
    path = [leaf.id]
    while (parent := by_id[path[-1]].parent) is not None:
        path.append(parent)
    return path[::-1]


# --- other programs -------------------------------------------------------------------------------


def _foreign(value: dict[str, Any], now: float) -> Found:
    """Turns one below the other; a turn with versions keeps them as branches."""
    messages: list[Message] = []
    shown: list[MessageId] = []
    system = [_text(value.get("systemPrompt") or value.get("system"))]
    for entry in _dicts(value.get("messages")):
        versions = _dicts(entry.get("versions")) or [entry]
        chosen = min(_int(entry.get("currentlySelected")), len(versions) - 1)
        if versions[0].get("role") in ("system", "developer"):
            system.append(_content(versions[chosen]))
            continue
        parent = shown[-1] if shown else None
        made: dict[int, MessageId] = {}
        for place, version in enumerate(versions):
            parts = text_parts(_content(version), _text(version.get("reasoning_content")))
            role = _ROLES.get(_text(version.get("role")))
            if role is None or not any(part.text.strip() for part in parts):
                continue
            number = MessageId(len(messages) + 1)
            model = _text(version.get("model"))
            message = Message(number, ChatId(0), parent, role, parts, model, created=now)
            messages.append(message)
            made[place] = number
        if made:
            shown.append(made.get(chosen, next(reversed(made.values()))))
    title = _text(value.get("title") or value.get("name"))
    prompt = "\n\n".join(text for text in system if text.strip())
    chat = Chat(ChatId(0), title=title, created=now, updated=now, system_prompt=prompt)
    return Found(chat, tuple(messages), tuple(shown))


def _content(entry: dict[str, Any]) -> str:
    """Return the text of one turn: a string, a list of text parts, or steps of such lists."""
    steps = _dicts(entry.get("steps"))
    if steps:
        texts = (_content(step) for step in steps if step.get("type") in (None, "contentBlock"))
        return "\n\n".join(text for text in texts if text)
    content = entry.get("content")
    return content if isinstance(content, str) else "".join(_texts(content))


def _texts(content: object) -> Iterator[str]:
    for part in content if isinstance(content, list) else ():
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict) and part.get("type") in ("text", "input_text", "output_text"):
            yield _text(part.get("text"))


# --- values of a file that anybody may have written -----------------------------------------------


def _dicts(value: object) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _int(value: object) -> int:
    return max(0, value) if isinstance(value, int) else 0


def _sampling(value: object) -> Sampling | None:
    sampling: Sampling | None = _converted(value, Sampling)
    try:
        if sampling is not None:
            sampling.check()
    except InvalidRequest:
        return None
    return sampling


def _seconds(value: object, now: float) -> float:
    try:
        return datetime.strptime(_text(value), _MOMENT).timestamp()
    except (ValueError, OverflowError):
        return now


def _converted(value: object, kind: Any) -> Any:  # noqa: ANN401 - whatever `kind` says
    """Return a value as the type, or None if it is no such value."""
    try:
        return msgspec.convert(value, kind) if value is not None else None
    except msgspec.ValidationError:
        return None
