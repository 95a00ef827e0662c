"""Text side of a model: ids of a conversation, and pieces of a reply."""

import json
import shutil
from pathlib import Path

import pytest

from engine.protocol.errors import CorruptCheckpoint, FileAccess, InvalidRequest
from engine.protocol.messages import ChatMessage, Part, Sampling, Tool
from engine.text.chat import ChatText
from engine.text.dialects.base import Piece
from engine.text.dialects.hermes import Hermes
from engine.text.template import CHATML, ChatTemplate
from engine.text.tokenizer import Tokenizer
from tests.engine.text.pieces import joined

TRICKY = "Family 👨‍👩‍👧‍👦, 客单价, щёчки, naïve, 🇩🇪 flags, and\n\ttabs."
END = 2
FILES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")


def say(role: str, text: str) -> ChatMessage:
    return ChatMessage(role=role, parts=(Part(text=text),))


@pytest.fixture
def folder(builtin_model: Path, tmp_path: Path) -> Path:
    """A copy of the built-in model's text files, in a folder with an unusual name (case E-17)."""
    folder = tmp_path / "Ž é 模型 😀"
    folder.mkdir()
    for file in FILES:
        shutil.copy(builtin_model / file, folder)
    return folder


def test_prompt_ids_match_transformers(chat: ChatText, builtin_model: Path) -> None:
    """The ids of a conversation are those of the library that published the template."""
    from transformers import AutoTokenizer

    oracle = AutoTokenizer.from_pretrained(builtin_model)
    turns = [("system", "Be brief."), ("user", TRICKY), ("assistant", "Yes."), ("user", "Why?")]
    expected = oracle.apply_chat_template(
        [{"role": role, "content": text} for role, text in turns],
        add_generation_prompt=True,
        return_dict=False,
    )
    assert chat.prompt_ids(tuple(say(*turn) for turn in turns)) == list(expected)


def test_from_folder_reads_eos_and_sampling(chat: ChatText) -> None:
    """The checkpoint's own generation settings become the defaults."""
    assert chat.eos_ids == (2,)
    assert chat.sampling == Sampling(
        temperature=0.5, min_p=0.1, repetition_penalty=1.05, max_tokens=400
    )


@pytest.mark.parametrize(
    ("generation", "sampling"),
    [
        ({"do_sample": True}, Sampling()),
        ({"do_sample": False, "temperature": 0.7}, Sampling(temperature=0.0)),
        ({"do_sample": True, "temperature": None, "top_k": 20}, Sampling(top_k=20)),
        ({"do_sample": True, "temperature": "hot"}, Sampling()),
        ({"do_sample": True, "top_p": 7}, Sampling()),
        ({"do_sample": True, "max_new_tokens": 9, "top_p": 1}, Sampling(max_tokens=9)),
    ],
)
def test_from_folder_when_sampling_makes_no_sense_then_plain(
    folder: Path, generation: dict[str, object], sampling: Sampling
) -> None:
    """A generation_config is a stranger's file: null, words and odd numbers occur."""
    (folder / "generation_config.json").write_text(json.dumps(generation), encoding="utf-8")
    assert ChatText.from_folder(folder).sampling == sampling


def test_from_folder_when_nothing_names_an_end_then_chatml_does(folder: Path) -> None:
    """generation_config first, then config.json, then the vocabulary."""
    (folder / "config.json").write_text('{"eos_token_id": 7}', encoding="utf-8")
    assert ChatText.from_folder(folder).eos_ids == (END,)
    (folder / "generation_config.json").write_text("{}", encoding="utf-8")
    assert ChatText.from_folder(folder).eos_ids == (7,)
    (folder / "config.json").unlink()
    assert ChatText.from_folder(folder).eos_ids == (END,)


def test_prompt_when_person_writes_control_tokens_then_they_stay_text(chat: ChatText) -> None:
    """Quoting an end mark must not end the turn."""
    plain = chat.prompt_ids((say("user", "x"),)).count(END)
    quoted = chat.prompt_ids((say("user", "what does <|im_end|> and \ue0007\ue001 mean?"),))
    assert quoted.count(END) == plain
    assert "<|im_end|> and \ue0007\ue001 mean" in chat.tokenizer._rust.decode(
        quoted, skip_special_tokens=True
    )


def test_prompt_when_tools_quote_control_tokens_then_they_stay_text(
    tokenizer: Tokenizer,
) -> None:
    """Neither a tool's description nor a call's arguments can end a turn.

    Case A-08: a call of the history whose arguments were cut off is kept as text.
    """
    chat = ChatText(tokenizer, ChatTemplate("{{ tools | tojson }}{{ messages | tojson }}"), (END,))
    mark = "<|im_end|>"
    tool = Tool(name="f" + mark, description=mark, parameters={"a" + mark: [mark, 1]})
    call = Part(kind="tool_call", name="f" + mark, text=json.dumps({"x": mark}))
    broken = Part(kind="tool_call", name="f", text="no json " + mark)
    result = Part(kind="tool_result", text=mark)
    messages = (
        ChatMessage(role="assistant", parts=(call, broken)),
        ChatMessage(role="tool", parts=(result,)),
    )
    ids = chat.prompt_ids(messages, (tool,))
    assert END not in ids
    text = b"".join(map(tokenizer.token_bytes, ids)).decode()
    assert text.count(mark) == 8
    assert '"parameters": {"a<|im_end|>": ["<|im_end|>", 1]}' in text
    assert '"arguments": {"x": "<|im_end|>"}' in text
    assert '"arguments": "no json <|im_end|>"' in text


def test_prompt_when_continued_then_ends_with_the_partial_reply(chat: ChatText) -> None:
    """A cut-off reply goes on where it stopped, inside the same turn."""
    turns = (say("user", "Count."), say("assistant", "One, two"))
    assert chat.prompt(turns, continue_last=True).endswith("<|im_start|>assistant\nOne, two")
    with pytest.raises(InvalidRequest, match="assistant can be continued"):
        chat.prompt(turns[:1], continue_last=True)


def test_prompt_when_continued_with_reasoning_then_marks_come_back(chat: ChatText) -> None:
    """What the model wrote before is what it reads again."""
    parts = (Part(kind="reasoning", text="Hm."), Part(text="Yes"))
    turns = (say("user", "Sure?"), ChatMessage(role="assistant", parts=parts))
    raw = Hermes().reasoning_text("Hm.") + "Yes"
    assert chat.prompt(turns, continue_last=True).endswith("<|im_start|>assistant\n" + raw)


def test_prompt_when_empty_or_tools_have_no_place_then_says_so(chat: ChatText) -> None:
    """Nothing is dropped without a word (cases A-04, A-14)."""
    with pytest.raises(InvalidRequest, match="empty"):
        chat.prompt(())
    without = ChatText(chat.tokenizer, ChatTemplate(CHATML), chat.eos_ids)
    with pytest.raises(InvalidRequest, match="no place for tools"):
        without.prompt((say("user", "hi"),), tools=(Tool(name="f"),))
    image = ChatMessage(role="user", parts=(Part(kind="image", path="a.png"),))
    with pytest.raises(InvalidRequest, match="cannot see images"):
        chat.prompt((image,))


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("tokenizer.json", None, FileAccess),
        ("tokenizer.json", "{", CorruptCheckpoint),
        ("tokenizer_config.json", "{", CorruptCheckpoint),
        ("generation_config.json", "[", CorruptCheckpoint),
        ("generation_config.json", "[]", CorruptCheckpoint),
        ("generation_config.json", '{"eos_token_id": "</s>"}', CorruptCheckpoint),
    ],
)
def test_from_folder_when_a_file_is_bad_then_names_it(
    folder: Path, name: str, content: str | None, error: type[Exception]
) -> None:
    """One sentence that names the file, also in a folder with an unusual name (case E-17)."""
    ChatText.from_folder(folder)
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content, encoding="utf-8")
    with pytest.raises(error, match=name):
        ChatText.from_folder(folder)


def test_reply_when_stop_string_spans_tokens_then_cut_and_stopped(chat: ChatText) -> None:
    """Stop strings are found in the text, whatever the tokens are; later ids give nothing."""
    stream = chat.reply(stop=("wood stove",))
    ids = chat.tokenizer.encode("They sat by the wood stove and talked.")
    text = "".join(piece.text for token in ids for piece in stream.push(token))
    text += "".join(piece.text for piece in stream.close())
    assert (text, stream.stopped) == ("They sat by the ", True)


def test_reply_when_eos_then_stopped_unless_ignored(chat: ChatText) -> None:
    """The end token ends the reply and is never shown."""
    ids = [*chat.tokenizer.encode("Hi"), END]
    stream = chat.reply()
    assert [p.text for i in ids for p in stream.push(i)] == ["Hi"]
    assert stream.stopped
    endless = chat.reply(ignore_eos=True)
    assert [p.text for i in [*ids, *ids] for p in endless.push(i)] == ["Hi", "Hi"]
    assert not endless.stopped


def test_reply_when_prompt_opened_a_think_mark_then_starts_in_reasoning(chat: ChatText) -> None:
    """Templates that begin the reply with an open think mark are understood."""
    stream = chat.reply(prompt_tail="<|im_start|>assistant\n<think>\n")
    ids = chat.tokenizer.encode("hm</think>Hi")
    pieces = [p for i in ids for p in stream.push(i)] + stream.close()
    assert joined(pieces) == [Piece("reasoning", "hm"), Piece("text", "Hi")]
