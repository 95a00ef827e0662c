"""What a chat and its messages are, as frozen data. No database and no Qt here.

A chat is a tree: each message names its parent, siblings are versions of one turn, and the chat's
`leaf` says which path from the root is shown. `ChatStore` writes these, view models read them.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path, PurePath
from typing import Literal, NewType

import msgspec

from engine.protocol.errors import ErrorCode
from engine.protocol.messages import Part, Sampling, Trace, Usage

ChatId = NewType("ChatId", int)
MessageId = NewType("MessageId", int)
Role = Literal["user", "assistant"]
Reasoning = Literal["", "off", "low", "medium", "high"]
REASONING: tuple[Reasoning, ...] = ("", "off", "low", "medium", "high")

TITLE_LENGTH = 42


class MessageState(StrEnum):
    """How far a message got. Everything a person wrote is `DONE`."""

    DONE = "done"
    PARTIAL = "partial"  # a reply is being written
    STOPPED = "stopped"  # ended by the person
    INTERRUPTED = "interrupted"  # the engine or the app went away
    FAILED = "failed"  # the engine refused or broke; `ReplyFacts.error` says why


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a reply failed; the code decides the words, the message is kept for the details."""

    code: ErrorCode
    message: str = ""
    hint: str = ""


class ReplyFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known about a reply besides its text; stored as JSON, additive only.

    `speed` holds at most 64 rates (tokens/s) along the reply, in order.
    """

    reason: str = ""
    usage: Usage = Usage()
    trace: Trace | None = None
    thought_s: float = 0.0
    thought_tokens: int = 0
    speed: tuple[float, ...] = ()
    error: Failure | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One turn. `created` is in seconds since the epoch."""

    id: MessageId
    chat_id: ChatId
    parent: MessageId | None
    role: Role
    parts: tuple[Part, ...]
    model: str = ""
    state: MessageState = MessageState.DONE
    facts: ReplyFacts = field(default_factory=ReplyFacts)
    created: float = 0.0

    @property
    def text(self) -> str:
        """The visible text, without reasoning."""
        return joined(self.parts, "text")

    @property
    def files(self) -> tuple[Part, ...]:
        """The attached text files."""
        return files_of(self.parts)

    @property
    def reasoning(self) -> str:
        """What the model thought before it answered."""
        return joined(self.parts, "reasoning")


@dataclass(frozen=True, slots=True)
class Chat:
    """A conversation's own settings.

    Attributes:
        sampling: None = the model's own values.
        draft, files: what is typed and attached, not yet sent.
        queued: what is sent when the running reply is done.
        preset: name of the preset it was set up with, or "".
        reasoning: how much the model shall think; "" = as the model does by itself.
    """

    id: ChatId
    title: str = ""
    pinned: bool = False
    created: float = 0.0
    updated: float = 0.0
    system_prompt: str = ""
    sampling: Sampling | None = None
    draft: str = ""
    leaf: MessageId | None = None
    files: tuple[Part, ...] = ()
    queued: tuple[Part, ...] = ()
    preset: str = ""
    reasoning: Reasoning = ""


@dataclass(frozen=True, slots=True)
class Draft:
    """What a person wrote and attached, to be sent together."""

    text: str = ""
    files: tuple[Part, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is anything to send."""
        return bool(self.text.strip()) or bool(self.files)

    def __add__(self, other: "Draft") -> "Draft":
        """Return both, one below the other."""
        texts = [text for text in (self.text, other.text) if text.strip()]
        return Draft("\n\n".join(texts), self.files + other.files)

    @classmethod
    def of(cls, parts: tuple[Part, ...]) -> "Draft":
        """Return the draft that made these parts."""
        return cls(joined(parts, "text"), files_of(parts))

    @property
    def words(self) -> str:
        """The text, or the names of the files where there is none: for titles and cards."""
        return self.text if self.text.strip() else ", ".join(file.name for file in self.files)

    def parts(self) -> tuple[Part, ...]:
        """The draft as the parts of a message."""
        return self.files + text_parts(self.text)


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A chat that matches, with the place in its text; `message` None = the title matched."""

    chat: Chat
    message: MessageId | None
    excerpt: str


@dataclass(frozen=True, slots=True)
class ChatRow:
    """One entry of the chat list: a chat, and where a search found something in it."""

    chat: Chat
    excerpt: str = ""
    message: MessageId | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """A head of the chat list and its entries; without a head while searching."""

    title: str
    rows: tuple[ChatRow, ...]


@dataclass(frozen=True, slots=True)
class StoreNotice:
    """Something about the store that a person should know; `path` is the file it is about."""

    code: Literal["damaged", "newer", "memory", "saved", "rescued"]
    path: Path
    detail: str = ""


def joined(parts: tuple[Part, ...], kind: str) -> str:
    """Return the text of all parts of one kind, without that of files."""
    return "".join(part.text for part in parts if part.kind == kind and not part.name)


def files_of(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Return the attached files: texts with a file name."""
    return tuple(part for part in parts if part.kind == "text" and part.name)


def quoted(file: Part) -> str:
    """Return a file as a fenced block below its name, as the model and an export see it."""
    fence = "```"
    while fence in file.text:  # a file that holds fences itself gets a longer one
        fence += "`"
    language = PurePath(file.name).suffix.lstrip(".")
    return f"{file.name}:\n{fence}{language}\n{file.text.rstrip()}\n{fence}"


def text_parts(text: str, reasoning: str = "") -> tuple[Part, ...]:
    """Return parts for a text and, before it, what was thought."""
    parts = (Part(kind="reasoning", text=reasoning), Part(kind="text", text=text))
    return tuple(part for part in parts if part.text)


def reply_place(chat_id: ChatId, parent: MessageId | None, model: str) -> Message:
    """Return a reply by `model` of which nothing is there yet; the store gives it its id."""
    return Message(MessageId(0), chat_id, parent, "assistant", (), model, MessageState.PARTIAL)


def title_from(text: str) -> str:
    """Return a chat title: the first words of its first message, on one line."""
    words = text.split()
    title = ""
    for word in words:
        longer = f"{title} {word}" if title else word
        if len(longer) > TITLE_LENGTH:
            return (title or word[: TITLE_LENGTH - 1]) + "…"
        title = longer
    return title
