"""The built-in model against transformers: real weights, real text, published FP8 layout."""

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from tests.parity.support import (
    ALL_HIT,
    MIXED,
    NONE_HIT,
    Prepared,
    close,
    open_native,
    reference_logits,
    reference_model,
)
from tests.support.checkpoints import convert_checkpoint

pytestmark = pytest.mark.weights

PROMPTS = (
    "<|im_start|>user\nTell me a story about a cat.<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nWho are you?<|im_end|>\n<|im_start|>assistant\n",
)


@pytest.fixture(scope="module")
def prepared(builtin_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """The model for both sides."""
    folder = tmp_path_factory.mktemp("builtin")
    converted = convert_checkpoint(builtin_model, folder / "converted")
    return Prepared(reference_model(builtin_model, folder / "plain"), converted)


@pytest.mark.parametrize("text", PROMPTS)
def test_greedy_when_forty_tokens_then_those_of_transformers(
    prepared: Prepared, builtin_model: Path, text: str
) -> None:
    """The same reply, token by token, wherever the experts lie."""
    ids = Tokenizer.from_file(str(builtin_model / "tokenizer.json")).encode(text).ids
    with torch.inference_mode():
        reply = prepared.reference.generate(
            torch.tensor([ids]),
            max_new_tokens=40,
            min_new_tokens=40,
            do_sample=False,
            repetition_penalty=1.0,
            temperature=None,
            min_p=None,
            eos_token_id=None,
        )[0, len(ids) :].tolist()
    for placement in (ALL_HIT, NONE_HIT, MIXED):
        with open_native(prepared.converted, placement) as native:
            assert native.greedy(ids, 40) == reply


def test_logits_when_prefilled_then_those_of_transformers(
    prepared: Prepared, builtin_model: Path
) -> None:
    """All logits of a prompt, at once and in chunks."""
    text = PROMPTS[0] + "Once upon a time, there was a small cat named Tom."
    ids = Tokenizer.from_file(str(builtin_model / "tokenizer.json")).encode(text).ids
    expected = reference_logits(prepared.reference, ids)
    with open_native(prepared.converted, MIXED) as native:
        for chunks in ((len(ids),), (7, len(ids) - 9)):
            close(native.logits(ids, chunks), expected)
