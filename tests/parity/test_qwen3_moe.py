"""qwen3_moe against transformers, on tiny random checkpoints."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen3MoeConfig

from engine.protocol.messages import Sampling
from engine.runner.work import RowWork
from tests.parity.support import (
    ALL_HIT,
    MIXED,
    PLACEMENTS,
    Prepared,
    Stored,
    assert_parity,
    close,
    open_native,
    prepare,
    random_tokens,
    reference_logits,
)

TINY: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 24,
    "num_experts": 7,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 48,
    "intermediate_size": 80,
    "max_position_embeddings": 256,
}


@pytest.mark.parametrize(
    ("stored", "changes"),
    [
        ("bf16", {}),
        ("bf16", {"norm_topk_prob": True, "tie_word_embeddings": True}),
        ("bf16", {"mlp_only_layers": [1], "num_key_value_heads": 6}),
        ("bf16", {"decoder_sparse_step": 2, "num_key_value_heads": 1, "head_dim": 8}),
        ("fp8_block", {"hidden_size": 160, "moe_intermediate_size": 144}),
        ("fp8_block", {"norm_topk_prob": True, "mlp_only_layers": [0], "num_experts": 5}),
        ("bf16", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
        ("bf16", {"rms_norm_eps": 1e-2, "num_experts_per_tok": 7}),
    ],
    ids=lambda value: value if isinstance(value, str) else ",".join(value) or "plain",
)
def test_logits_when_any_config_then_those_of_transformers(
    tmp_path: Path, stored: Stored, changes: dict[str, Any]
) -> None:
    """E no power of two, K > 1, dense layers, grouped heads, tied or not, both encodings."""
    assert_parity(Qwen3MoeConfig(**{**TINY, **changes}), tmp_path, stored)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """One checkpoint for the tests below; logits large enough that greedy choices are clear."""
    config = Qwen3MoeConfig(**{**TINY, "norm_topk_prob": True, "max_position_embeddings": 1024})
    return prepare(config, tmp_path_factory.mktemp("tiny"))


def test_logits_when_prompt_lengths_sweep_page_borders_then_each_is_right(
    prepared: Prepared,
) -> None:
    """Case E-02: the first new token must not be wrong for particular prompt lengths.

    For each length: the prompt at once, the prompt but for its last token and that one decoded, and
    the prompt cut in two at a place that wanders over the page.
    """
    tokens = random_tokens(70, 100)
    expected = reference_logits(prepared.reference, tokens)
    with open_native(prepared.converted, MIXED) as native:
        for length in range(1, 71):
            for chunks in ((length,), (length - 1,), (length * 5 // 7, length - length * 5 // 7)):
                filled = tuple(size for size in chunks if size)
                close(native.logits(tokens[:length], filled)[-1], expected[length - 1])


def test_decode_when_context_is_walked_in_odd_steps_then_as_one_prefill(prepared: Prepared) -> None:
    """Case E-16: faults that show only at long contexts, as far as a tiny model goes.

    At each stop 8 tokens are decoded; the whole text is then prefilled at once, by both sides.
    """
    tokens = random_tokens(900, 100)
    expected = reference_logits(prepared.reference, tokens)
    with open_native(prepared.converted, ALL_HIT) as native:
        whole = native.logits(tokens, (900,))
        close(whole, expected)
        native.tokens = []
        for stop in (1, 18, 61, 150, 397, 640, 900 - 8):
            native.run(tokens[len(native.tokens) : stop], "prefill")
            for place in range(stop, stop + 8):
                logits = native.run([tokens[place]], "decode")[0]
                close(logits, whole[place])
                assert logits.argmax() == expected[place].argmax()


def test_decode_when_rows_share_a_step_then_each_as_alone(prepared: Prepared) -> None:
    """Rows of other lengths and other pages do not disturb each other."""
    texts = [random_tokens(n, 100, seed=n) for n in (3, 16, 33)]
    expected = [reference_logits(prepared.reference, text)[-1] for text in texts]
    with open_native(prepared.converted, MIXED) as native:
        runner = native.runner(max_rows=3)
        pages = [(9, 2), (7, 1), (4, 11, 5)]
        for row, text in enumerate(texts):
            runner.open_row(row, Sampling(temperature=0.0), 0, text)
            runner.launch("prefill", [RowWork(row, tuple(text[:-1]), 0, pages[row], False)]).wait()
        works = [
            RowWork(row, (text[-1],), len(text) - 1, pages[row], True)
            for row, text in enumerate(texts)
        ]
        assert runner.launch("decode", works).wait() == tuple(int(e.argmax()) for e in expected)


def test_bits_when_experts_are_placed_otherwise_then_the_same(prepared: Prepared) -> None:
    """Numerics contract: residency, policy and split change no bit of a decode or a prefill."""
    tokens = random_tokens(40, 100)
    results = []
    for placement in PLACEMENTS:
        with open_native(prepared.converted, placement) as native:
            results.append(native.logits(tokens, (13, 11)))
    assert all(torch.equal(result, results[0]) for result in results)


def test_logits_when_activations_are_bfloat16_then_within_its_table(tmp_path: Path) -> None:
    """The dtype of activations and KV is a parameter; half precision is rough, not wrong.

    Every token uses every expert here: a choice that tips over by a rounding is no fault.
    """
    config = Qwen3MoeConfig(**{**TINY, "num_experts_per_tok": 7, "norm_topk_prob": True})
    reference, converted = prepare(config, tmp_path)
    tokens = random_tokens(40, 100)
    expected = reference_logits(reference, tokens)
    with open_native(converted, MIXED, dtype=torch.bfloat16) as native:
        close(native.logits(tokens, (13, 11)), expected, torch.bfloat16)
