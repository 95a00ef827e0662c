"""The wire of OpenAI-compatible servers: requests out, streamed answers in, errors as sentences.

Pure: knows no socket and no Qt. Called by `app.services.remote_client`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import msgspec

from app.wording import tr
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode

_DATA = b"data:"
_DONE = b"[DONE]"
_MOST_LINE = 8 << 20
_REASONS = {
    "stop": m.FinishReason.STOP,
    "length": m.FinishReason.LENGTH,
    "tool_calls": m.FinishReason.STOP,
}


@dataclass(frozen=True, slots=True)
class Server:
    """Where to ask. `base` ends in the version, such as "https://host/v1"; `key` is never shown."""

    base: str
    key: str = ""

    @property
    def host(self) -> str:
        """Host and port, for people."""
        return urlsplit(self.base).netloc.rpartition("@")[2]

    @property
    def is_open(self) -> bool:
        """Whether others on the way can read what is sent, the key among it."""
        parts = urlsplit(self.base)
        return parts.scheme == "http" and not is_loopback(parts.hostname or "")

    def __repr__(self) -> str:
        """Without the key: this ends up in logs."""
        return f"Server({self.base!r})"


def is_loopback(host: str) -> bool:
    """Whether a host is this computer, by name or address."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def server_of(address: str, key: str = "") -> Server | None:
    """Return the server at an address as people write it; None if it is none."""
    text = address.strip()
    text = (text if "://" in text else f"https://{text}").rstrip("/")
    try:
        parts = urlsplit(text)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    if not address.strip() or not is_good or parts.query or parts.fragment or " " in text:
        return None
    return Server(text if parts.path else f"{text}/v1", key.strip())


def request_body(
    model: str,
    messages: Sequence[m.ChatMessage],
    sampling: m.Sampling,
    tools: Sequence[m.Tool] = (),
    continue_last: bool = False,
    template_args: dict[str, object] | None = None,
) -> bytes:
    """Return the JSON of a streamed chat completion. What is at its default is left out."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [_message(message) for message in messages],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
    }
    plain = m.Sampling()
    for name in (
        "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
        "seed", "stop", "ignore_eos",
    ):  # fmt: skip
        if getattr(sampling, name) != getattr(plain, name):
            body[name] = getattr(sampling, name)
    if tools:
        body["tools"] = [{"type": "function", "function": msgspec.to_builtins(t)} for t in tools]
    if continue_last:
        body |= {"continue_final_message": True, "add_generation_prompt": False}
    if template_args:
        body["chat_template_kwargs"] = template_args
    return msgspec.json.encode(body)


def _message(message: m.ChatMessage) -> dict[str, Any]:
    text = "".join(p.text for p in message.parts if p.kind in ("text", "tool_result"))
    told: dict[str, Any] = {"role": message.role, "content": text}
    calls = [p for p in message.parts if p.kind == "tool_call"]
    if calls:
        told["tool_calls"] = [
            {
                "id": p.call_id,
                "type": "function",
                "function": {"name": p.name, "arguments": p.text},
            }
            for p in calls
        ]
    result = next((p for p in message.parts if p.kind == "tool_result"), None)
    if result is not None:
        told["tool_call_id"] = result.call_id
    return told


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct):
    index: int = 0
    id: str | None = None
    function: _Function = msgspec.field(default_factory=_Function)


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[_Call, ...] | None = None


class _Choice(msgspec.Struct):
    delta: _Delta = msgspec.field(default_factory=_Delta)
    finish_reason: str | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _Details | None = None


class _Chunk(msgspec.Struct):
    choices: tuple[_Choice, ...] = ()
    usage: _Usage | None = None
    error: Any = None


class BadAnswer(Exception):
    """The server sent what no such server sends; `text` is its own words, "" = none."""

    def __init__(self, text: str = "") -> None:
        super().__init__(text)
        self.text = text


class Stream:
    """One streamed answer: bytes in any pieces to deltas.

    Attributes:
        reason: why it ended; None = it has not, or was cut.
        is_done: whether the server said that this was all.
        usage: counts, as far as the server told them.
    """

    def __init__(self, reply_id: str) -> None:
        self._id = reply_id
        self._rest = b""
        self._calls: dict[int, _Call] = {}
        self.reason: m.FinishReason | None = None
        self.is_done = False
        self.usage = m.Usage()

    def feed(self, data: bytes) -> list[m.TokenDelta]:
        """Take bytes; returns the deltas that became whole.

        Raises: BadAnswer.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _MOST_LINE:
            raise BadAnswer
        return [delta for line in lines for delta in self._line(line.strip())]

    def close(self) -> list[m.TokenDelta]:
        """The connection ended; a last line may lack its end. Raises: BadAnswer."""
        rest, self._rest = self._rest, b""
        return self._line(rest.strip())

    def calls(self) -> list[m.ToolCallDelta]:
        """Return the tool calls, whole."""
        return [
            m.ToolCallDelta(
                id=self._id,
                call_id=call.id or "",
                name=call.function.name or "",
                arguments=call.function.arguments or "",
            )
            for _, call in sorted(self._calls.items())
        ]

    def _line(self, line: bytes) -> list[m.TokenDelta]:
        if not line.startswith(_DATA):
            return []  # comments and event names, which keep the line alive
        data = line[len(_DATA) :].strip()
        if data == _DONE:
            self.is_done = True
            return []
        try:
            chunk = msgspec.json.decode(data, type=_Chunk)
        except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
            raise BadAnswer from problem
        if chunk.error is not None:
            raise BadAnswer(error_text(bytes(data)))
        if chunk.usage is not None:
            self._count(chunk.usage)
        return self._deltas(chunk.choices[0]) if chunk.choices else []

    def _deltas(self, choice: _Choice) -> list[m.TokenDelta]:
        if choice.finish_reason:
            self.reason = _REASONS.get(choice.finish_reason, m.FinishReason.STOP)
        for call in choice.delta.tool_calls or ():
            self._add_call(call)
        found = []
        thought = choice.delta.reasoning_content or choice.delta.reasoning
        if thought:
            found.append(m.TokenDelta(id=self._id, kind="reasoning", text=thought))
        if choice.delta.content:
            found.append(m.TokenDelta(id=self._id, text=choice.delta.content))
        return found

    def _add_call(self, call: _Call) -> None:
        kept = self._calls.setdefault(call.index, _Call(call.index))
        kept.id = kept.id or call.id
        kept.function.name = kept.function.name or call.function.name
        kept.function.arguments = (kept.function.arguments or "") + (call.function.arguments or "")

    def _count(self, usage: _Usage) -> None:
        details = usage.prompt_tokens_details
        self.usage = m.Usage(
            prompt_tokens=usage.prompt_tokens,
            reply_tokens=usage.completion_tokens,
            reused_tokens=(details.cached_tokens or 0) if details is not None else 0,
        )


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: tuple[_Model, ...]


def model_names(data: bytes) -> tuple[str, ...]:
    """Read the answer of /models. Raises: BadAnswer."""
    try:
        found = msgspec.json.decode(data, type=_Models)
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise BadAnswer from problem
    return tuple(dict.fromkeys(model.id for model in found.data))


def error_text(data: bytes) -> str:
    """Return the server's own words in an error body, shortened; "" = none that can be read."""
    try:
        found = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""
    while isinstance(found, dict):
        found = found.get("error") or found.get("message") or found.get("detail")
    return found.strip()[:300] if isinstance(found, str) else ""


def refused(status: int, body: bytes, host: str, model: str) -> m.Error:
    """Return the sentence for an HTTP status that is no success."""
    said = error_text(body)
    code, words, hint = (
        ErrorCode.NETWORK,
        tr("{host} answered HTTP {status}.", host=host, status=status),
        "",
    )
    if status in (401, 403):
        code = ErrorCode.TOKEN
        words = tr("{host} does not accept the key, or wants one.", host=host)
        hint = tr("Enter the key in Settings, under Remote engine.")
    elif status == 404:
        code = ErrorCode.NOT_FOUND
        words = tr("{host} has nothing at this address (HTTP 404).", host=host)
        if model:
            words = tr("{host} has no model {model} at this address.", host=host, model=model)
        hint = tr("Check address and model in Settings; the address often ends in /v1.")
    elif status == 429:
        words = tr("{host} is busy, or the key's limit is reached.", host=host)
        hint = tr("Try again later.")
    elif status in (400, 413, 422):
        code = ErrorCode.INVALID_REQUEST
        words = tr("{host} does not take this request.", host=host)
    elif 300 <= status < 400:
        words = tr("{host} sends on to another address, which is not followed.", host=host)
        hint = tr("Enter the final address in Settings.")
    elif status >= 500:
        words = tr("{host} is out of order (HTTP {status}).", host=host, status=status)
        hint = tr("Try again later.")
    if said:
        words = tr("{words} It says: {said}", words=words, said=said)
    return m.Error(code=code, message=str(words), hint=str(hint))
