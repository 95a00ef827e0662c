"""What goes to the engine: a stored path as protocol messages. No Qt."""

from collections.abc import Sequence

from app.services.chat_records import Message, Reasoning, files_of, quoted
from engine.protocol.messages import ChatMessage, Part


def chat_messages(
    system_prompt: str,
    path: Sequence[Message],
    continue_last: bool = False,
    files: bool = True,
) -> tuple[ChatMessage, ...]:
    """Return the conversation as the engine shall see it.

    Files stand before the text they were sent with, quoted below their names. Reasoning of earlier
    replies is left out, as chat templates do; the reply to be continued keeps its own. Replies
    without any text (broken before the first word) are left out too. `files` False leaves the files
    out: what the conversation would cost without them.
    """
    messages: list[ChatMessage] = []
    if system_prompt.strip():
        messages.append(ChatMessage(role="system", parts=(Part(text=system_prompt),)))
    for place, message in enumerate(path):
        keep_all = continue_last and place == len(path) - 1
        parts = tuple(p for p in message.parts if keep_all or p.kind != "reasoning")
        parts = parts if files else tuple(p for p in parts if p not in files_of(parts))
        if parts:
            messages.append(ChatMessage(role=message.role, parts=with_files_quoted(parts)))
    return tuple(messages)


def with_files_quoted(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Return parts with the files among them as one quoted text at the beginning."""
    files = files_of(parts)
    if not files:
        return parts
    text = "\n\n".join(quoted(file) for file in files)
    others = tuple(part for part in parts if part not in files)
    return (Part(text=f"{text}\n\n" if others else text), *others)


def template_args(reasoning: Reasoning) -> dict[str, object]:
    """Return what chat templates call it; one that knows none of the names ignores them."""
    if not reasoning:
        return {}
    thinks = reasoning != "off"
    args: dict[str, object] = {"enable_thinking": thinks, "thinking": thinks}
    return args | {"reasoning_effort": reasoning} if thinks else args
