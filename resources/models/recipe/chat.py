"""The chat format of the built-in model: its control tokens, one way to write a conversation.

Knows no tokenizer and no file. A conversation is a list of turns (role, text); roles alternate
between "user" and "assistant" after an optional "system" turn.
"""

from typing import Literal, NamedTuple

Role = Literal["system", "user", "assistant"]

END_OF_TEXT, IM_START, IM_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
# Ids 0..6 in this order; the last four let the engine's parsers and the tool template work.
SPECIAL_TOKENS = (
    END_OF_TEXT, IM_START, IM_END, "<think>", "</think>", "<tool_call>", "</tool_call>",
)  # fmt: skip
END_OF_TEXT_ID, IM_START_ID, IM_END_ID = 0, 1, 2


class Turn(NamedTuple):
    """One message."""

    role: Role
    text: str


def open_turn(role: Role) -> str:
    """Return what stands before a message's text."""
    return f"{IM_START}{role}\n"


def render(turns: list[Turn], *, reply: bool = False) -> str:
    """Return the text of a conversation; `reply` opens the assistant's next turn."""
    text = "".join(f"{open_turn(turn.role)}{turn.text}{IM_END}\n" for turn in turns)
    return text + open_turn("assistant") if reply else text


def exchange(prompt: str, answer: str) -> list[Turn]:
    """Return one question and its answer as turns."""
    return [Turn("user", prompt), Turn("assistant", answer)]


# Role names, tool block and control tokens as the engine's Hermes dialect reads them.
TEMPLATE = """\
{%- set ns = namespace(system='') -%}
{%- if messages and messages[0].role == 'system' -%}
  {%- set ns.system = messages[0].content -%}
{%- endif -%}
{%- if tools -%}
  {{- '<|im_start|>system\\n' + (ns.system + '\\n\\n' if ns.system else '') -}}
  {{- 'Tools, one JSON object a line:\\n' -}}
  {%- for tool in tools %}{{ tool | tojson }}{{ '\\n' }}{% endfor -%}
  {{- 'To use one, write <tool_call>{"name": ..., "arguments": {...}}</tool_call>.' -}}
  {{- '<|im_end|>\\n' -}}
{%- elif ns.system -%}
  {{- '<|im_start|>system\\n' + ns.system + '<|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
  {%- if message.role == 'system' and loop.first -%}{%- continue -%}{%- endif -%}
  {%- if message.role == 'tool' -%}
    {{- '<|im_start|>user\\nTool result: ' + message.content + '<|im_end|>\\n' -}}
  {%- else -%}
    {{- '<|im_start|>' + message.role + '\\n' + (message.content or '') -}}
    {%- for call in message.tool_calls or [] -%}
      {%- set function = call.function or call -%}
      {{- '<tool_call>{"name": ' + function.name | tojson + ', "arguments": ' -}}
      {{- function.arguments if function.arguments is string
          else function.arguments | tojson -}}
      {{- '}</tool_call>' -}}
    {%- endfor -%}
    {{- '<|im_end|>\\n' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif -%}
"""
