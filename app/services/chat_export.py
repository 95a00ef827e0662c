"""A chat as a file for other programs: Markdown for people, JSON for everything. No Qt.

Markdown holds what is on screen. JSON holds the whole tree, every version with its figures, so that
nothing is lost.
"""

import re
import time
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from app.services.chat_records import Chat, Message, quoted
from app.wording import tr

Kind = Literal["md", "json"]
FORMAT, VERSION = "freetoken-chat", 1

_FORBIDDEN = re.compile(r'[\x00-\x1f<>:"/\\|?*]+')  # in file names, Windows included
_NAME_LENGTH = 80


def file_name(chat: Chat, kind: Kind) -> str:
    """Return a name for the file that every system takes."""
    name = " ".join(_FORBIDDEN.sub(" ", chat.title).split())[:_NAME_LENGTH].strip(" .…")
    return f"{name or 'chat'}.{kind}"


def as_markdown(chat: Chat, path: Sequence[Message]) -> str:
    """Return the messages on screen as Markdown, each below the name of who wrote it."""
    parts = [f"# {chat.title or tr('New chat')}"]
    if chat.system_prompt:
        parts += [f"## {tr('System prompt')}", chat.system_prompt]
    for message in path:
        who = tr("You") if message.role == "user" else message.model or tr("Reply")
        parts += [f"## {who}", f"*{_moment(message.created)}*"]
        if message.reasoning:
            lines = message.reasoning.strip().splitlines()
            parts.append("\n".join(f"> {line}".rstrip() for line in lines))
        for part in message.parts:
            if part.kind == "tool_call":
                parts.append(f"```json\n{part.name} {part.text}\n```")
        parts += [quoted(file) for file in message.files]
        if message.text:
            parts.append(message.text.strip())
    return "\n\n".join(parts) + "\n"


def as_json(chat: Chat, path: Sequence[Message], messages: Sequence[Message]) -> str:
    """Return the whole tree as JSON; `shown` marks the messages on screen.

    Args:
        chat: the chat.
        path: the messages on screen, in order.
        messages: every message of the chat.
    """
    on_screen = {message.id for message in path}
    raw: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "title": chat.title,
        "created": _moment(chat.created),
        "system_prompt": chat.system_prompt,
        "sampling": msgspec.to_builtins(chat.sampling),
        "preset": chat.preset,
        "reasoning": chat.reasoning,
        "messages": [
            {
                "id": message.id,
                "parent": message.parent,
                "shown": message.id in on_screen,
                "role": message.role,
                "model": message.model,
                "created": _moment(message.created),
                "state": message.state.value,
                "parts": msgspec.to_builtins(message.parts),
                "facts": msgspec.to_builtins(message.facts),
            }
            for message in messages
        ],
    }
    return msgspec.json.format(msgspec.json.encode(raw), indent=2).decode() + "\n"


def _moment(seconds: float) -> str:
    """Local time with its offset from UTC, to the second (ISO 8601)."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(seconds))
