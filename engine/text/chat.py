"""One model's way of chatting: messages to prompt ids, reply ids to pieces.

Joins tokenizer, template and dialect; knows no scheduler and no tensors. Called by
`engine.service` and `engine.loader`.
"""

import json
from pathlib import Path
from typing import Any

import msgspec

from engine.protocol.errors import InvalidRequest
from engine.protocol.messages import ChatMessage, Sampling, Tool
from engine.text.detokenizer import Detokenizer
from engine.text.dialects.base import Dialect, Piece, Splitter
from engine.text.dialects.registry import choose_dialect
from engine.text.files import damaged, read_json
from engine.text.stops import StopFilter
from engine.text.template import ChatTemplate, read_template
from engine.text.tokenizer import Tokenizer

CHATML_END = "<|im_end|>"


class ChatText:
    """Text side of a loaded model.

    Attributes:
        eos_ids: ids that end a reply.
        sampling: the checkpoint's own generation_config; None if it brings none.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        eos_ids: tuple[int, ...],
        sampling: Sampling | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.template = template
        self.dialect: Dialect = choose_dialect(template.source, tokenizer.specials)
        self.eos_ids = eos_ids
        self.sampling = sampling

    @classmethod
    def from_folder(cls, folder: Path) -> "ChatText":
        """Read tokenizer, template and generation_config of a model folder.

        Raises: FileAccess or CorruptCheckpoint naming the file.
        """
        tokenizer = Tokenizer(folder)
        template = read_template(folder)
        generation = read_json(folder / "generation_config.json")
        ids = _eos_ids(folder / "generation_config.json") or _eos_ids(folder / "config.json")
        if not ids and CHATML_END in tokenizer.specials:
            ids = (tokenizer.specials[CHATML_END],)
        return cls(tokenizer, template, ids, _sampling(generation) if generation else None)

    @property
    def vocab_size(self) -> int:
        """Number of ids that the tokenizer knows."""
        return self.tokenizer.vocab_size

    def prompt_ids(
        self,
        messages: tuple[ChatMessage, ...],
        tools: tuple[Tool, ...] = (),
        continue_last: bool = False,
        template_args: dict[str, Any] | None = None,
    ) -> list[int]:
        """Return the ids of a conversation, ending where the reply begins or goes on.

        Raises: InvalidRequest if there is nothing to answer, or the template refuses.
        """
        return self.tokenizer.encode(self.prompt(messages, tools, continue_last, template_args))

    def prompt(
        self,
        messages: tuple[ChatMessage, ...],
        tools: tuple[Tool, ...] = (),
        continue_last: bool = False,
        template_args: dict[str, Any] | None = None,
    ) -> str:
        """Return the rendered prompt. Raises as `prompt_ids`."""
        if not messages:
            raise InvalidRequest("The conversation is empty.", "Send at least one message.")
        if tools and not self.template.takes_tools:
            raise InvalidRequest("This model's chat template has no place for tools.")
        tail = ""
        if continue_last:
            if messages[-1].role != "assistant":
                raise InvalidRequest("Only a reply of the assistant can be continued.")
            messages, last = messages[:-1], messages[-1]
            tail = self._raw_reply(last)
        plain = [self._plain(message) for message in messages]
        offered = [self._tool(tool) for tool in tools]
        return self.template.render(plain, offered, **(template_args or {})) + tail

    def reply(
        self, stop: tuple[str, ...] = (), ignore_eos: bool = False, prompt_tail: str = ""
    ) -> "ReplyStream":
        """Return a fresh reader of one reply's ids."""
        return ReplyStream(
            Detokenizer(self.tokenizer, self.dialect.marks),
            StopFilter(stop),
            self.dialect.splitter(prompt_tail),
            () if ignore_eos else self.eos_ids,
        )

    def _raw_reply(self, message: ChatMessage) -> str:
        reasoning = "".join(p.text for p in message.parts if p.kind == "reasoning")
        text = "".join(p.text for p in message.parts if p.kind == "text")
        return self.dialect.reasoning_text(self.tokenizer.guard(reasoning)) + (
            self.tokenizer.guard(text)
        )

    def _plain(self, message: ChatMessage) -> dict[str, Any]:
        """Return the message as templates want it: role, content, tool_calls."""
        out: dict[str, Any] = {"role": message.role}
        content: list[str] = []
        calls: list[dict[str, Any]] = []
        for part in message.parts:
            if part.kind in ("text", "tool_result"):
                content.append(self.tokenizer.guard(part.text))
            elif part.kind == "tool_call":
                guard = self.tokenizer.guard
                calls.append(_call(guard(part.name), guard(part.text)))
            elif part.kind == "image":
                raise InvalidRequest("This model cannot see images.", "Remove the image.")
        out["content"] = "".join(content)
        reasoning = "".join(p.text for p in message.parts if p.kind == "reasoning")
        if reasoning:
            out["reasoning_content"] = self.tokenizer.guard(reasoning)
        if calls:
            out["tool_calls"] = calls
        return out

    def _tool(self, tool: Tool) -> dict[str, Any]:
        """Return the tool as templates want it; what its maker wrote is text, never a mark."""
        parameters = json.dumps(tool.parameters, ensure_ascii=False)
        return {
            "type": "function",
            "function": {
                "name": self.tokenizer.guard(tool.name),
                "description": self.tokenizer.guard(tool.description),
                "parameters": json.loads(self.tokenizer.guard(parameters)),
            },
        }


class ReplyStream:
    """Reads one reply: ids in, pieces out.

    Attributes:
        stopped: an end token or a stop string was seen; later ids give nothing.
    """

    def __init__(
        self,
        detokenizer: Detokenizer,
        stops: StopFilter,
        splitter: Splitter,
        eos_ids: tuple[int, ...],
    ) -> None:
        self._detokenizer = detokenizer
        self._stops = stops
        self._splitter = splitter
        self._eos_ids = frozenset(eos_ids)
        self.stopped = False

    def push(self, token_id: int) -> list[Piece]:
        """Add one id; return the pieces that became certain, never empty ones."""
        if self.stopped:
            return []
        if token_id in self._eos_ids:
            self.stopped = True
            return []
        text = self._stops.push(self._detokenizer.push(token_id))
        self.stopped = self._stops.stopped
        return self._splitter.push(text) if text else []

    def close(self) -> list[Piece]:
        """Return what was held back; call once, when the reply is over."""
        text = "" if self._stops.stopped else self._stops.push(self._detokenizer.close())
        text += "" if self._stops.stopped else self._stops.close()
        out = self._splitter.push(text) if text else []
        return out + self._splitter.close()


def _call(name: str, arguments: str) -> dict[str, Any]:
    """Return a call of the history; arguments that are no JSON stay text (case A-08)."""
    try:
        parsed: Any = json.loads(arguments) if arguments else {}
    except ValueError:
        parsed = arguments
    return {"type": "function", "function": {"name": name, "arguments": parsed}}


def _eos_ids(path: Path) -> tuple[int, ...]:
    """Return the end tokens that a config names. Raises CorruptCheckpoint if they are no ids."""
    eos = read_json(path).get("eos_token_id")
    ids = eos if isinstance(eos, list) else [] if eos is None else [eos]
    if not all(type(one) is int for one in ids):
        raise damaged(path, f"eos_token_id is {eos!r}")
    return tuple(ids)


def _sampling(generation: dict[str, Any]) -> Sampling:
    """Translate a generation_config; values that make no sense fall back to plain sampling."""
    names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
    values = {name: generation[name] for name in names if generation.get(name) is not None}
    if not generation.get("do_sample"):
        values["temperature"] = 0.0
    if generation.get("max_new_tokens"):
        values["max_tokens"] = generation["max_new_tokens"]
    try:
        sampling = msgspec.convert(values, Sampling)
        sampling.check()
    except (InvalidRequest, msgspec.ValidationError):
        return Sampling()
    return sampling
