"""A checkpoint's own chat template: a stranger's program, whose faults are sentences."""

import json
from pathlib import Path

import pytest

from engine.protocol.errors import CorruptCheckpoint, InvalidRequest
from engine.text.template import CHATML, ChatTemplate, merge_neighbours, read_template

TURN = {"role": "user", "content": "a"}


def test_template_when_roles_must_alternate_then_neighbours_are_merged() -> None:
    """Two user turns in a row do not kill the chat (case A-05)."""
    template = ChatTemplate(
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}[{{ m.content }}]{% endfor %}"
    )
    assert template.render([TURN, {"role": "user", "content": "b"}], []) == "[a\n\nb]"
    with pytest.raises(InvalidRequest, match="roles must alternate"):
        template.render([{"role": "assistant", "content": "a"}], [])


def test_merge_when_a_turn_holds_more_than_text_then_it_stays_as_it_is() -> None:
    """A tool call must not vanish in its neighbour; tool results are turns of their own."""
    call = {"role": "assistant", "content": "", "tool_calls": [{"type": "function"}]}
    result = {"role": "tool", "content": "3"}
    turns = [{"role": "assistant", "content": "Wait."}, call, result, result]
    assert merge_neighbours(turns) == turns
    assert merge_neighbours([TURN, TURN, result]) == [{"role": "user", "content": "a\n\na"}, result]


def test_template_when_hostile_then_sandboxed() -> None:
    """A downloaded template cannot reach Python's insides."""
    template = ChatTemplate("{{ ().__class__.__base__.__subclasses__() }}")
    with pytest.raises(InvalidRequest):
        template.render([{"role": "user", "content": "x"}], [])


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' + none }}",
        "{{ 1 // 0 }}",
        "{{ messages | tojson(indent='x', nothing=1) }}",
        "{{ none.x.y }}",
        "{% for i in range(10 ** 9) %}{% endfor %}",
        "{{ 'x'.encode('nothing') }}",
    ],
)
def test_template_when_it_fails_in_any_way_then_the_request_is_refused(source: str) -> None:
    """A bug of a template is a sentence, not an internal error that ends the engine."""
    with pytest.raises(InvalidRequest, match="template refuses"):
        ChatTemplate(source).render([TURN], [])


def test_template_when_its_syntax_is_wrong_then_corrupt() -> None:
    """Found when the model is loaded."""
    with pytest.raises(CorruptCheckpoint, match="cannot be read"):
        ChatTemplate("{% for %}")


def test_template_when_it_writes_json_then_as_it_asks_for_it() -> None:
    """As transformers does: no HTML escapes, and separators and order as given."""
    value = [{"role": "user", "content": "<b> 客"}]
    plain = ChatTemplate("{{ messages | tojson }}").render(value, [])
    assert plain == '[{"role": "user", "content": "<b> 客"}]'
    dense = "{{ messages | tojson(separators=(',', ':'), sort_keys=true) }}"
    assert ChatTemplate(dense).render(value, []) == '[{"content":"<b> 客","role":"user"}]'


def test_read_template_when_several_are_there_then_the_own_file_wins(tmp_path: Path) -> None:
    """chat_template.jinja, else the config's "default", else the first, else ChatML."""
    assert read_template(tmp_path).source == CHATML
    config = tmp_path / "tokenizer_config.json"
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}, 3]
    config.write_text(json.dumps({"chat_template": named}), encoding="utf-8")
    assert read_template(tmp_path).source == "D"
    config.write_text(json.dumps({"chat_template": named[:1]}), encoding="utf-8")
    assert read_template(tmp_path).source == "T"
    (tmp_path / "chat_template.jinja").write_text("{{ bos_token }}{{ eos_token }}", "utf-8")
    tokens = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": None}
    config.write_text(json.dumps(tokens), encoding="utf-8")
    assert read_template(tmp_path).render([TURN], []) == "<s></s>"


@pytest.mark.parametrize("name", ["chat_template.jinja", "tokenizer_config.json"])
def test_read_template_when_a_file_is_no_text_then_names_it(tmp_path: Path, name: str) -> None:
    """A download that went wrong."""
    (tmp_path / name).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CorruptCheckpoint, match=name):
        read_template(tmp_path)
