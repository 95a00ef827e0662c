"""The search job against a hub on loopback: what it offers, leaves out, and says when it fails."""

import pytest

from engine.jobs import search
from engine.protocol.errors import Cancelled, InvalidRequest, NetworkError, TokenNeeded
from engine.protocol.messages import Progress
from tests.support.checkpoints import tiny_config
from tests.support.mock_hub import MockHub, serve

TAGS = ["safetensors", "qwen3_moe", "license:apache-2.0"]
SHA = "ab" * 20
# config.json of Qwen/Qwen3-30B-A3B, shortened: figures are public.
QWEN = {
    "model_type": "qwen3_moe", "num_hidden_layers": 48, "hidden_size": 2048, "vocab_size": 151936,
    "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128,
    "num_experts_per_tok": 8, "moe_intermediate_size": 768, "intermediate_size": 6144,
    "norm_topk_prob": True, "max_position_embeddings": 40960, "eos_token_id": 151645,
}  # fmt: skip


def hit(repo, downloads=1, tags=TAGS, **more):
    return {"id": repo, "sha": SHA, "downloads": downloads, "tags": list(tags), **more}


@pytest.fixture
def hub(tmp_path):
    with serve(MockHub(tmp_path)) as made:
        yield made


def run(hub, query="moe", cancelled=lambda: False, emit=lambda _: None, **more):
    spec = {"query": query, "id": "s", "endpoint": hub.url, "hub_proxy": "direct", **more}
    return search.run(spec, emit, cancelled)


def test_search_when_models_can_be_served_then_facts_of_their_config(hub):
    """Popular first, with the commit, and figures that fit follows from."""
    hub.hits = [hit("a/small-moe", 5), hit("Qwen/Qwen3-30B-A3B-moe", 900)]
    hub.configs = {"a/small-moe": tiny_config(), "Qwen/Qwen3-30B-A3B-moe": QWEN}
    events = []
    found = run(hub, emit=events.append)
    assert [model["repo"] for model in found["models"]] == [
        "Qwen/Qwen3-30B-A3B-moe", "a/small-moe",
    ]  # fmt: skip
    qwen = found["models"][0]
    assert qwen["total_params"] == pytest.approx(30.5e9, rel=0.01)
    assert qwen["active_params"] == pytest.approx(3.3e9, rel=0.03)
    assert (qwen["quant"], qwen["experts"], qwen["top_k"]) == ("bf16", 128, 8)
    assert (qwen["commit"], qwen["licence"], qwen["gated"]) == (SHA, "apache-2.0", False)
    assert found["left_out"] == 0
    assert {e.stage for e in events if isinstance(e, Progress)} == {"search"}
    assert not [path for path in hub.paths if path.endswith(".safetensors")]
    assert f"/a/small-moe/resolve/{SHA}/config.json" in hub.paths


def test_search_when_a_model_cannot_be_served_then_left_out_and_counted(hub):
    """Another attention, another format, no config: nothing is offered that would fail later."""
    sliding = {**QWEN, "use_sliding_window": True}
    other = {**QWEN, "quantization_config": {"quant_method": "awq"}}
    hub.hits = [hit("a/moe-1"), hit("a/moe-2"), hit("a/moe-3"), hit("a/moe-4", tags=["gguf"])]
    hub.configs = {"a/moe-1": sliding, "a/moe-2": other, "a/moe-3": 404}
    found = run(hub)
    assert (found["models"], found["left_out"]) == ([], 3)


def test_search_when_gated_then_listed_without_figures(hub):
    """The download is where a licence is accepted and a token entered (D-10)."""
    hub.hits = [hit("a/moe", gated="manual")]
    hub.configs = {"a/moe": 401}
    (model,) = run(hub)["models"]
    assert model["gated"] is True
    assert "layers" not in model


def test_search_when_the_hub_is_out_of_reach_then_one_sentence(hub):
    """D-11, D-13: refused, not a hub, no search, a token wanted, a dead proxy: each says which."""
    hub.fault("search").status = 404
    with pytest.raises(NetworkError, match="offers no search"):
        run(hub)
    hub.fault("search").status = 401
    with pytest.raises(TokenNeeded, match="wants an access token"):
        run(hub)
    with pytest.raises(NetworkError, match=r"proxy http://127\.0\.0\.1:9"):
        run(hub, hub_proxy="http://127.0.0.1:9")
    with pytest.raises(NetworkError, match="connection was refused"):
        run(hub, endpoint="http://127.0.0.1:9")


def test_search_when_something_else_answers_then_said(hub):
    """A login page in between is no hub."""
    hub.hits = [{"id": "a/moe", "tags": TAGS, "downloads": "many"}]
    with pytest.raises(NetworkError, match="did not answer as a model hub"):
        run(hub)


def test_search_when_stopped_then_at_the_next_model(hub):
    """A new question must not wait for the old one."""
    hub.hits = [hit("a/moe-1"), hit("a/moe-2")]
    hub.configs = {"a/moe-1": QWEN, "a/moe-2": QWEN}
    with pytest.raises(Cancelled):
        run(hub, cancelled=lambda: len(hub.requests) > 1)
    assert len(hub.requests) == 2


@pytest.mark.parametrize("query", ["", "   ", 5])
def test_search_when_nothing_is_asked_then_invalid(hub, query):
    """Never a request for everything."""
    with pytest.raises(InvalidRequest):
        run(hub, query)
    assert hub.requests == []
