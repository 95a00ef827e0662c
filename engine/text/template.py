"""A checkpoint's own chat template, rendered in a sandbox.

Knows no tokens. Used by `engine.text.chat`.
"""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.protocol.errors import CorruptCheckpoint, InvalidRequest
from engine.text.files import read_json, read_text

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# What a template can raise: it is a program of somebody else's.
_FAULTS = (TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class ChatTemplate:
    """Messages as plain dicts in, prompt text out.

    Attributes:
        source: the template's text.
        takes_tools: the template has a place for tool definitions.
    """

    def __init__(self, source: str, constants: dict[str, str] | None = None) -> None:
        self.source = source
        self.takes_tools = "tools" in source
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        self._constants = constants or {}
        try:
            self._template = environment.from_string(source)
        except TemplateError as problem:
            raise CorruptCheckpoint(
                f"The chat template of this model cannot be read: {problem}.",
                "Download tokenizer_config.json again.",
            ) from problem

    def render(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], **arguments: object
    ) -> str:
        """Return the prompt, ending where the reply begins.

        A template that insists on alternating roles gets neighbours of one role merged (case A-05).
        Raises: InvalidRequest with the template's own reason.
        """
        try:
            return self._render(messages, tools, arguments)
        except _FAULTS as first:
            merged = merge_neighbours(messages)
            if len(merged) == len(messages):
                raise _refusal(first) from first
            try:
                return self._render(merged, tools, arguments)
            except _FAULTS as second:
                raise _refusal(second) from second

    def _render(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]],
        arguments: dict[str, object],
    ) -> str:
        values: dict[str, Any] = {**self._constants, "add_generation_prompt": True, **arguments}
        return self._template.render(messages=messages, tools=tools or None, **values)


def read_template(folder: Path) -> ChatTemplate:
    """Return the template of a model folder; ChatML if it brings none.

    Source: `chat_template.jinja`, else `chat_template` in tokenizer_config.json (one text, or a
    list of named ones of which "default" counts).
    """
    config = read_json(folder / "tokenizer_config.json")
    constants = {
        name: _token_text(config[name])
        for name in ("bos_token", "eos_token", "pad_token", "unk_token")
        if config.get(name)
    }
    own = folder / "chat_template.jinja"
    if own.is_file():
        return ChatTemplate(read_text(own), constants)
    given = config.get("chat_template")
    if isinstance(given, list):
        named = {one.get("name"): one.get("template") for one in given if isinstance(one, dict)}
        given = named.get("default") or next(iter(named.values()), None)
    return ChatTemplate(given if isinstance(given, str) else CHATML, constants)


def merge_neighbours(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join neighbouring user or assistant turns by a blank line.

    Others stay as they are, and so does a turn that holds more than text.
    """
    out: list[dict[str, Any]] = []
    for message in messages:
        last = out[-1] if out else None
        is_plain = message["role"] in ("user", "assistant") and len(message) == 2
        if last and last["role"] == message["role"] and is_plain:
            joined = "\n\n".join(text for text in (last["content"], message["content"]) if text)
            out[-1] = {**last, "content": joined}
        else:
            out.append(message)
    return out


def _token_text(token: object) -> str:
    """Return a token's text; configs give it plain, or as an object with its content."""
    return str(token.get("content", "")) if isinstance(token, dict) else str(token)


def _refusal(problem: Exception) -> InvalidRequest:
    return InvalidRequest(f"This model's chat template refuses the conversation: {problem}.")


def _raise(message: str) -> None:
    raise TemplateError(message)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own `tojson` escapes HTML, which no model was trained on."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
