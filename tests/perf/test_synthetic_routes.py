"""Routes without the model are those of the model."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from kernels.reference.records import unpack_record
from tests.perf.replay import read_conversations
from tests.perf.synthetic_routes import layer_routes, main
from tests.perf.synthetic_weights import TINY, SyntheticWeights


def whole_model(weights: SyntheticWeights) -> Qwen3MoeForCausalLM:
    """The same weights in another implementation."""
    shape = weights.shape
    config = Qwen3MoeConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        num_experts=shape.experts,
        num_experts_per_tok=shape.top_k,
        moe_intermediate_size=shape.intermediate,
        norm_topk_prob=True,
        rope_theta=1e6,
        attn_implementation="eager",
    )
    model = Qwen3MoeForCausalLM(config).float().eval()
    state = {"model.norm.weight": torch.ones(shape.hidden)}
    state["model.embed_tokens.weight"], state["lm_head.weight"] = weights.embedding_and_head()
    source, record = weights.experts(), np.empty(shape.layout.record_bytes, np.uint8)
    for layer in range(shape.layers):
        prefix = f"model.layers.{layer}."
        state |= {prefix + name: tensor for name, tensor in weights.layer(layer).items()}
        both, down = [], []
        for expert in range(shape.experts):
            source.fill(layer * shape.experts + expert, record)
            parts = unpack_record(shape.layout, torch.from_numpy(record))
            both.append(torch.cat(parts[:2]))
            down.append(parts[2].T)
        state[prefix + "mlp.experts.gate_up_proj"] = torch.stack(both)
        state[prefix + "mlp.experts.down_proj"] = torch.stack(down)
    model.load_state_dict({name: tensor.float() for name, tensor in state.items()})
    return model


def test_routes_when_the_whole_model_reads_the_same_ids_then_they_are_its_choices() -> None:
    """Two conversations at once, each with its own context; bf16 products may turn a near tie."""
    weights = SyntheticWeights(TINY)
    model, first, second = whole_model(weights), torch.arange(40, 100), torch.arange(900, 930)
    with torch.inference_mode():
        logits = [
            model(ids[None], output_router_logits=True).router_logits for ids in (first, second)
        ]
    embedding = weights.embedding_and_head()[0]
    states = embedding[torch.cat((first, second))].float()
    for layer, found in enumerate(layer_routes(weights, states, [60, 30])):
        of_layer = torch.cat([both[layer].view(-1, TINY.experts) for both in logits])
        wanted = of_layer.topk(TINY.top_k, -1).indices.numpy()
        same = (np.sort(found, -1) == np.sort(wanted, -1)).all(-1)
        assert same.mean() > 0.95, layer


def test_main_when_it_has_written_a_file_then_the_replay_reads_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "--layers 1 --vocab 256 --intermediate 16 --starts 3 90 --tokens 20 --prompt 12"
    assert main([str(tmp_path / "routes.npz"), *words.split()]) == 0
    assert "bytes" in capsys.readouterr().out
    talks, experts = read_conversations(tmp_path / "routes.npz")
    assert experts == 128
    assert [(len(talk.prompt), len(talk.reply)) for talk in talks] == [(12, 7), (12, 7)]
    assert talks[0].prompt.shape == (12, 1, 8)
