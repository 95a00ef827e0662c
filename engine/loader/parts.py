"""What the service needs of a loaded model, and of whoever loads it. Interfaces only.

`engine.loader.open` fulfils them; tests bring doubles. No torch here, so that an engine without a
model starts quickly.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from engine.cache.pages import PageAllocator
from engine.memory.budget import MemoryBudget
from engine.protocol.messages import (
    ChatMessage,
    DeviceInfo,
    Load,
    MissPolicy,
    ModelInfo,
    Tool,
)
from engine.scheduler.pools import ExpertMemory, KvMemory
from engine.scheduler.seams import Runner
from engine.scheduler.tally import Counters
from engine.settings import EngineSettings
from engine.text.dialects.base import Piece


class Encoder(Protocol):
    """Text to ids."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of a rendered prompt."""
        ...


class Reply(Protocol):
    """Reads one reply's ids; `engine.text.chat.ReplyStream`."""

    @property
    def stopped(self) -> bool:
        """An end token or a stop string was seen."""
        ...

    def push(self, token_id: int) -> list[Piece]:
        """Add an id; return the pieces that became certain."""
        ...

    def close(self) -> list[Piece]:
        """Return what was held back."""
        ...


class Chat(Protocol):
    """A model's text side; `engine.text.chat.ChatText`."""

    @property
    def tokenizer(self) -> Encoder:
        """Its tokenizer."""
        ...

    def prompt(
        self,
        messages: tuple[ChatMessage, ...],
        tools: tuple[Tool, ...] = (),
        continue_last: bool = False,
        template_args: dict[str, Any] | None = None,
    ) -> str:
        """Return the rendered conversation. Raises: InvalidRequest."""
        ...

    def reply(
        self, stop: tuple[str, ...] = (), ignore_eos: bool = False, prompt_tail: str = ""
    ) -> Reply:
        """Return a fresh reader of one reply."""
        ...


class Experts(ExpertMemory, Protocol):
    """The expert side; `engine.moe.executor.MoeExecutor`."""

    def counters(self) -> Counters:
        """Return sums since load."""
        ...

    def heat(self) -> tuple[bytes, bytes, int]:
        """Return (hits uint8 [L*E], resident [L*E], max_hits)."""
        ...

    def set_policy(self, policy: MissPolicy) -> None:
        """Serve misses this way from now on."""
        ...

    def warm_up(self) -> bool:
        """Copy for a few milliseconds what later replies profit from, while no request is open.

        Returns: whether there was anything to copy.
        Raises: DeviceError.
        """
        ...


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that can answer.

    Attributes:
        info: facts for the window.
        device: where it runs.
        budget: how its memory may be divided.
        chat, runner, pages, kv, experts: its parts.
        policy: how misses are served at first.
        kernels: op -> chosen implementation and why.
        notices: sentences that a person should read once.
        free_bytes: reads the device's free memory.
        memory_errors: exceptions that mean "device out of memory".
        lost_errors: exceptions that mean "the device is gone".
        close: frees everything; call once.
    """

    info: ModelInfo
    device: DeviceInfo
    budget: MemoryBudget
    chat: Chat
    runner: Runner
    pages: PageAllocator
    kv: KvMemory
    experts: Experts
    policy: MissPolicy
    free_bytes: Callable[[], int]
    close: Callable[[], None]
    kernels: dict[str, str]
    notices: tuple[tuple[str, str], ...] = ()  # (code, sentence)
    memory_errors: tuple[type[Exception], ...] = ()
    lost_errors: tuple[type[Exception], ...] = ()


@dataclass(frozen=True, slots=True)
class LoadWatch:
    """How a load is seen and stopped.

    Attributes:
        progress: told (stage, done_bytes, total_bytes).
        cancelled: asked between pieces of work.
    """

    progress: Callable[[str, int, int], None]
    cancelled: Callable[[], bool]


OpenModel = Callable[[Load, EngineSettings, LoadWatch], LoadedModel]
"""Raises: EngineError; everything is freed then."""
