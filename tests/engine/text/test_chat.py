"""Text side of a model: ids of a conversation, and pieces of a reply."""

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol.errors import CorruptCheckpoint, FileAccess, InvalidRequest
from engine.protocol.messages import ChatMessage, Part, Sampling, Tool
from engine.text.chat import ChatText
from engine.text.detokenizer import Detokenizer
from engine.text.dialects.base import Piece
from engine.text.dialects.hermes import HermesSplitter
from engine.text.stops import StopFilter
from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer

TRICKY = "Family 👨‍👩‍👧‍👦, 客单价, щёчки, naïve, 🇩🇪 flags, and\n\ttabs."


def say(role: str, text: str) -> ChatMessage:
    return ChatMessage(role=role, parts=(Part(text=text),))


def joined(pieces: list[Piece]) -> list[Piece]:
    """Merge neighbours of one kind, so that only the cut points differ."""
    out: list[Piece] = []
    for piece in pieces:
        if out and out[-1].kind == piece.kind != "tool_call":
            out[-1] = Piece(piece.kind, out[-1].text + piece.text)
        else:
            out.append(piece)
    return out


@pytest.fixture(scope="module")
def chat(builtin_model: Path) -> ChatText:
    return ChatText.from_folder(builtin_model)


@pytest.fixture(scope="module")
def builtin_model() -> Path:
    return Path(__file__).resolve().parents[3] / "resources" / "models" / "tiny-moe-fp8"


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
        temperature=0.6, min_p=0.1, repetition_penalty=1.15, max_tokens=200
    )


def test_prompt_when_person_writes_control_tokens_then_they_stay_text(chat: ChatText) -> None:
    """Quoting an end mark must not end the turn."""
    plain = chat.prompt_ids((say("user", "x"),)).count(2)
    quoted = chat.prompt_ids((say("user", "what does <|im_end|> and \ue0007\ue001 mean?"),))
    assert quoted.count(2) == plain
    assert "<|im_end|> and \ue0007\ue001 mean" in chat.tokenizer._rust.decode(
        quoted, skip_special_tokens=True
    )


def test_prompt_when_continued_then_ends_with_the_partial_reply(chat: ChatText) -> None:
    """A cut-off reply goes on where it stopped, inside the same turn."""
    turns = (say("user", "Count."), say("assistant", "One, two"))
    assert chat.prompt(turns, continue_last=True).endswith("<|im_start|>assistant\nOne, two")
    with pytest.raises(InvalidRequest, match="assistant can be continued"):
        chat.prompt(turns[:1], continue_last=True)


def test_prompt_when_empty_or_tools_have_no_place_then_says_so(chat: ChatText) -> None:
    """Nothing is dropped without a word (cases A-04, A-14)."""
    with pytest.raises(InvalidRequest, match="empty"):
        chat.prompt(())
    with pytest.raises(InvalidRequest, match="no place for tools"):
        chat.prompt((say("user", "hi"),), tools=(Tool(name="f"),))
    image = ChatMessage(role="user", parts=(Part(kind="image", path="a.png"),))
    with pytest.raises(InvalidRequest, match="cannot see images"):
        chat.prompt((image,))


def test_template_when_roles_must_alternate_then_neighbours_are_merged() -> None:
    """Two user turns in a row do not kill the chat (case A-05)."""
    template = ChatTemplate(
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}[{{ m.content }}]{% endfor %}"
    )
    turn = {"role": "user", "content": "a"}
    assert template.render([turn, {"role": "user", "content": "b"}], []) == "[a\n\nb]"
    with pytest.raises(InvalidRequest, match="roles must alternate"):
        template.render([{"role": "assistant", "content": "a"}], [])


def test_template_when_hostile_then_sandboxed() -> None:
    """A downloaded template cannot reach Python's insides."""
    template = ChatTemplate("{{ ().__class__.__base__.__subclasses__() }}")
    with pytest.raises(InvalidRequest):
        template.render([{"role": "user", "content": "x"}], [])


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("tokenizer.json", None, FileAccess),
        ("tokenizer.json", "{", CorruptCheckpoint),
        ("tokenizer_config.json", "{", CorruptCheckpoint),
        ("generation_config.json", "[", CorruptCheckpoint),
    ],
)
def test_from_folder_when_a_file_is_bad_then_names_it(
    builtin_model: Path, tmp_path: Path, name: str, content: str | None, error: type[Exception]
) -> None:
    """One sentence that names the file, also in a folder with an unusual name (case E-17)."""
    folder = tmp_path / "Ž é 模型 😀"
    folder.mkdir()
    for file in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(builtin_model / file, folder)
    ChatText.from_folder(folder)
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content, encoding="utf-8")
    with pytest.raises(error, match=name):
        ChatText.from_folder(folder)


@given(st.text(max_size=60))
def test_detokenizer_by_pieces_equals_whole(text: str) -> None:
    """No emoji or CJK character is ever broken (case A-11)."""
    tokenizer = _tokenizer()
    ids = tokenizer.encode(tokenizer.guard(text))
    reader = Detokenizer(tokenizer)
    pieces = [reader.push(token_id) for token_id in ids] + [reader.close()]
    assert "".join(pieces) == text
    assert all("\ufffd" not in piece for piece in pieces) or "\ufffd" in text


def test_detokenizer_when_reply_ends_inside_a_character_then_drops_it() -> None:
    """Half an emoji at the end is not shown as a replacement mark."""
    tokenizer = _tokenizer()
    ids = tokenizer.encode("ok 👨")
    reader = Detokenizer(tokenizer)
    text = "".join(reader.push(token_id) for token_id in ids[:-1]) + reader.close()
    assert text == "ok "


def test_detokenizer_of_a_sentencepiece_vocabulary_equals_whole() -> None:
    """Tokenizers that are not byte-level are read through a window."""
    tokenizer = _byte_fallback_tokenizer()
    assert not tokenizer.is_byte_level
    for text in ("a b é", "aa 客 b", "b 👨‍👩 a"):
        ids = tokenizer.encode(text)
        reader = Detokenizer(tokenizer)
        assert "".join([*(reader.push(i) for i in ids), reader.close()]) == tokenizer.decode(ids)


@given(st.text("abcxy", max_size=30), st.lists(st.text("abc", min_size=1, max_size=4), max_size=3))
def test_stop_filter_under_any_cut_equals_one_push(text: str, stops: list[str]) -> None:
    """What comes out is the text before the first stop string, however it was cut."""
    found = [at for stop in stops if (at := text.find(stop)) >= 0]
    whole = StopFilter(tuple(stops))
    by_letter = StopFilter(tuple(stops))
    out = "".join(by_letter.push(letter) for letter in text) + by_letter.close()
    assert whole.push(text) + whole.close() == (text[: min(found)] if found else text)
    # By letters, the stop string that is complete first wins, which is never later in the text.
    assert text.startswith(out)
    assert by_letter.stopped == bool(found)
    assert not any(stop in out for stop in stops)


RAW = (
    "<think>\nLet me\nsee.\n</think>\n\nSure: 客单价 <b>\n<tool_call>\n"
    '{"name": "add", "arguments": {"a": 1}}\n</tool_call>\nDone'
)


@given(st.lists(st.integers(1, 7), min_size=1, max_size=40))
def test_hermes_splitter_under_any_cut_gives_the_same_pieces(sizes: list[int]) -> None:
    """Marks may be split anywhere."""
    splitter, pieces, at = HermesSplitter(), [], 0
    for size in sizes:
        pieces += splitter.push(RAW[at : at + size])
        at += size
    pieces += splitter.push(RAW[at:]) + splitter.close()
    assert all(piece.text for piece in pieces)
    assert joined(pieces) == [
        Piece("reasoning", "Let me\nsee."),
        Piece("text", "Sure: 客单价 <b>\n"),
        Piece("tool_call", '{"a": 1}', "add", "call_1"),
        Piece("text", "Done"),
    ]


@pytest.mark.parametrize(
    "raw",
    [
        '<tool_call>{"name": "add", "argu',
        "<tool_call>not json</tool_call>",
        "<tool_call>[1]</tool_call>",
    ],
)
def test_hermes_splitter_when_a_call_is_broken_then_it_is_text(raw: str) -> None:
    """A cut-off tool call is shown, not lost and not an error (case A-08)."""
    splitter = HermesSplitter()
    assert joined(splitter.push(raw) + splitter.close()) == [Piece("text", raw)]


def test_reply_when_stop_string_spans_tokens_then_cut_and_stopped(chat: ChatText) -> None:
    """Stop strings are found in the text, whatever the tokens are; later ids give nothing."""
    stream = chat.reply(stop=("wood stove",))
    ids = chat.tokenizer.encode("They sat by the wood stove and talked.")
    text = "".join(piece.text for token in ids for piece in stream.push(token))
    text += "".join(piece.text for piece in stream.close())
    assert (text, stream.stopped) == ("They sat by the ", True)


def test_reply_when_eos_then_stopped_unless_ignored(chat: ChatText) -> None:
    """The end token ends the reply and is never shown."""
    ids = [*chat.tokenizer.encode("Hi"), 2]
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


def _tokenizer() -> Tokenizer:
    return Tokenizer(Path(__file__).resolve().parents[3] / "resources" / "models" / "tiny-moe-fp8")


def _byte_fallback_tokenizer() -> Tokenizer:
    """A tiny tokenizer in the manner of SentencePiece: spaces as marks, bytes as tokens."""
    import tempfile

    vocab = {f"<0x{byte:02X}>": byte for byte in range(256)} | {"▁": 256, "a": 257, "b": 258}
    facts = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ],
        },
        "model": {
            "type": "BPE",
            "vocab": vocab,
            "merges": [],
            "byte_fallback": True,
            "fuse_unk": False,
            "ignore_merges": False,
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
        },
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        path.write_text(json.dumps(facts), encoding="utf-8")
        return Tokenizer(path.parent)
