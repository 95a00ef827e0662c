"""Job: ask a hub for models that this engine can serve, with the facts of each config.json.

Spec: {"query": str, "id": str, "limit": int} and, where needed, "endpoint" (a mirror), "hub_proxy",
"hub_token". Result: query, models (as the app's catalogue has them, popular first), left_out
(found, but of a kind that the engine cannot serve). Fetches lists and config files, never weights.

Stages of its progress: "search", counting models (bytes count models).
"""

from collections.abc import Callable
from typing import Any

import msgspec

from engine.checkpoint.source import CONFIG
from engine.jobs.hub import Hub, HubHit
from engine.models.registry import FAMILIES, get_family
from engine.models.spec import ModelSpec
from engine.protocol.errors import (
    Cancelled,
    GatedModel,
    InvalidRequest,
    NotOnHub,
    TokenNeeded,
    UnsupportedCheckpoint,
)
from engine.protocol.messages import Event, Progress
from engine.quant.registry import get_format

WEIGHTS_TAG = "safetensors"
LIMIT = 20


def run(
    spec: dict[str, Any], emit: Callable[[Event], None], cancelled: Callable[[], bool]
) -> dict[str, Any]:
    """Run the job.

    Raises: InvalidRequest, NetworkError, TokenNeeded (the hub answers nobody without one),
        Cancelled.
    """
    query, job_id = _text(spec, "query").strip(), _text(spec, "id")
    if not query:
        raise InvalidRequest("The job's 'query' is empty.")
    limit = int(spec.get("limit") or LIMIT)
    hub = Hub(_text(spec, "endpoint"), _text(spec, "hub_proxy"), _text(spec, "hub_token"))
    emit(Progress(id=job_id, stage="search", detail=query))
    hits: dict[str, HubHit] = {}
    for family in FAMILIES:
        for hit in hub.search(query, (WEIGHTS_TAG, family), limit):
            hits.setdefault(hit.repo, hit)
    found = sorted(hits.values(), key=lambda hit: -hit.downloads)[:limit]
    models: list[dict[str, Any]] = []
    for done, hit in enumerate(found):
        if cancelled():
            raise Cancelled("The search was stopped.")
        emit(Progress(id=job_id, stage="search", done_bytes=done, total_bytes=len(found)))
        facts = _facts(hub, hit)
        if facts is not None:
            models.append(facts)
    return {"query": query, "models": models, "left_out": len(found) - len(models)}


def _facts(hub: Hub, hit: HubHit) -> dict[str, Any] | None:
    """Return what is known of one model; None if the engine cannot serve it."""
    known = {
        "repo": hit.repo,
        "title": hit.repo.partition("/")[2],
        "commit": hit.commit,
        "licence": hit.licence,
        "downloads": hit.downloads,
        "gated": hit.is_gated,
    }
    try:
        raw = hub.small_file(hit.repo, hit.commit, CONFIG)
        config = msgspec.json.decode(raw, type=dict[str, Any])
        model = get_family(str(config.get("model_type", ""))).read_config(config)
        get_format(model.quant, model.quant_group).layout(model)
    except (TokenNeeded, GatedModel):
        return {**known, "gated": True}  # the download asks for what it takes
    except (NotOnHub, UnsupportedCheckpoint, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return {**known, **figures(model)}


def figures(model: ModelSpec) -> dict[str, Any]:
    """Return the figures that fit and speed follow from; parameters are arithmetic."""
    layers = len(model.moe_layers)
    expert = 3 * model.hidden * model.moe_intermediate
    attention = 2 * model.hidden * model.head_dim * (model.num_heads + model.num_kv_heads)
    ends = (1 if model.tie_embeddings else 2) * model.vocab_size * model.hidden
    plain = (model.num_layers - layers) * 3 * model.hidden * model.dense_intermediate
    router = layers * model.hidden * model.router.num_experts
    dense = model.num_layers * attention + ends + plain + router
    return {
        "family": model.model_type,
        "quant": model.quant,
        "context": model.max_context,
        "layers": layers,
        "hidden": model.hidden,
        "moe_intermediate": model.moe_intermediate,
        "experts": model.router.num_experts,
        "top_k": model.router.top_k,
        "heads": model.num_heads,
        "kv_heads": model.num_kv_heads,
        "head_dim": model.head_dim,
        "vocab": model.vocab_size,
        "total_params": dense + layers * model.router.num_experts * expert,
        "active_params": dense + layers * model.router.top_k * expert,
    }


def _text(spec: dict[str, Any], key: str) -> str:
    value = spec.get(key, "")
    if not isinstance(value, str):
        raise InvalidRequest(f"The job's '{key}' must be text.")
    return value
