"""What goes to the engine: a stored path as protocol messages, and dropped files as text."""

from collections.abc import Sequence
from pathlib import Path

from app.services.chat_records import Message
from app.wording import tr
from engine.protocol.messages import ChatMessage, Part

MAX_DROP_BYTES = 256 * 1024


def chat_messages(
    system_prompt: str, path: Sequence[Message], continue_last: bool = False
) -> tuple[ChatMessage, ...]:
    """Return the conversation as the engine shall see it.

    Reasoning of earlier replies is left out, as chat templates do; the reply to be continued keeps
    its own. Replies without any text (broken before the first word) are left out too.
    """
    messages: list[ChatMessage] = []
    if system_prompt.strip():
        messages.append(ChatMessage(role="system", parts=(Part(text=system_prompt),)))
    for place, message in enumerate(path):
        keep_all = continue_last and place == len(path) - 1
        parts = tuple(p for p in message.parts if keep_all or p.kind != "reasoning")
        if parts:
            messages.append(ChatMessage(role=message.role, parts=parts))
    return tuple(messages)


def dropped_text(paths: Sequence[Path]) -> tuple[str, list[str]]:
    """Read dropped text files as fenced blocks.

    Returns: the text for the draft, and a sentence for each file that cannot be taken.
    """
    blocks: list[str] = []
    refused: list[str] = []
    for path in paths:
        try:
            if path.is_dir():
                refused.append(tr("{name} is a folder. Drop text files here.", name=path.name))
                continue
            if path.stat().st_size > MAX_DROP_BYTES:
                refused.append(tr("{name} is larger than 256 KiB.", name=path.name))
                continue
            text = path.read_bytes().decode("utf-8-sig")
        except UnicodeDecodeError:
            refused.append(tr("{name} is not a text file.", name=path.name))
        except OSError:
            refused.append(tr("{name} cannot be read.", name=path.name))
        else:
            blocks.append(_fenced(path.name, path.suffix.lstrip("."), text))
    return "\n\n".join(blocks), refused


def _fenced(name: str, language: str, text: str) -> str:
    fence = "```"
    while fence in text:  # a file that holds fences itself gets a longer one
        fence += "`"
    return f"{name}:\n{fence}{language}\n{text.rstrip()}\n{fence}"
