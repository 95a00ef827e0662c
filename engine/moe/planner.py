"""How the experts of a prompt chunk reach the device. Numbers only; no torch.

Never looks at residency: a chunk is computed the same way whatever the cache holds
(ARCHITECTURE.md, Numerics). Both ways give the same bits; they differ in what is copied, and when.
"""

from typing import Literal

PrefillPath = Literal["full_layer", "on_demand"]

# Streaming a whole layer overlaps with the layer before; loading on demand does not, so it must
# save a good part of the bytes. 0.85 is reached at 15 tokens for 4 of 32, 60 for 8 of 256.
DEMAND_SHARE = 0.85


def distinct_share(num_tokens: int, top_k: int, num_experts: int) -> float:
    """Return which share of a layer's experts a chunk should route, if routes were uniform."""
    return 1.0 - (1.0 - min(1.0, top_k / num_experts)) ** num_tokens


def choose_path(num_tokens: int, top_k: int, num_experts: int, staging_records: int) -> PrefillPath:
    """Choose for one chunk; the same for all of its layers.

    `full_layer` needs staging for two layers; else, or if the chunk routes few of the experts, only
    the routed ones are copied.
    """
    if staging_records < 2 * num_experts:
        return "on_demand"
    few = distinct_share(num_tokens, top_k, num_experts) < DEMAND_SHARE
    return "on_demand" if few else "full_layer"
