"""How long a prompt's chunks and tiles are where steps are captured, and what they take.

Numbers only. A chunk goes through all layers in one pass, so each missing expert crosses the link
once per chunk: the longer the better. Within a layer its tokens go tile by tile, so that a token of
a chunk costs little more than its hidden state. Called by `engine.loader.open` and `plan`.
"""

from dataclasses import dataclass, replace

from engine.models.spec import ModelSpec
from engine.moe.router import TILE_TOKENS
from engine.protocol.errors import InvalidRequest

PLAIN_CHUNK_TOKENS = 256  # where layers run one by one
CHUNK_SHARE = 0.02  # of the device
MOST_CHUNK_TOKENS = 32_768
LEAST_CHUNK_TOKENS = 512
STEP_TOKENS = 256
ATTENTION_TILE_TOKENS = 2048  # enough to keep a card busy
VALUE_BYTES = 2  # of activations, keys and values


@dataclass(frozen=True, slots=True)
class PromptChunk:
    """The lengths of a load.

    Attributes:
        tokens: of a chunk.
        tile_tokens: that attention takes at once; 0 = all.
    """

    tokens: int
    tile_tokens: int = 0

    def num_bytes(self, spec: ModelSpec) -> int:
        """Return what a chunk takes of the device, experts aside."""
        tile = self.tile_tokens or self.tokens
        return self.tokens * token_bytes(spec) + tile * tile_token_bytes(spec)

    def passing_parts(self) -> "PromptChunk":
        """Return the chunk where staging holds no whole layer: one tile of the experts at most.

        Parts of a layer that give way to each other are passed once a tile.
        """
        return replace(self, tokens=min(self.tokens, TILE_TOKENS))


def token_bytes(spec: ModelSpec) -> int:
    """Return what one token of a chunk takes from the first layer to the last.

    Its hidden state, angles, and place; of the layer in work its routes with what counts them. The
    keys and values of a layer, which attention reads side by side, count as context: they are those
    of tokens before the chunk as well.
    """
    return VALUE_BYTES * (spec.hidden + 2 * spec.head_dim) + 3 * 8 + 32 * spec.router.top_k


def tile_token_bytes(spec: ModelSpec) -> int:
    """Return what one token takes while it is in work, in attention or in a router's tile.

    Attention: input, q, k and v, what it gives, and that through the output's weights. Router: the
    norm in two and in four bytes, logits and scores; its tile may be longer.
    """
    hidden, heads = spec.hidden, spec.num_heads * spec.head_dim
    values = 2 * hidden + 2 * heads + 2 * spec.num_kv_heads * spec.head_dim
    routing = 6 * hidden + 8 * spec.router.num_experts
    return max(VALUE_BYTES * values, routing * TILE_TOKENS // ATTENTION_TILE_TOKENS)


def choose_chunk(spec: ModelSpec, device_bytes: int) -> PromptChunk:
    """Return a chunk and tile that take 2 % of the device.

    A tile is the whole chunk where the longest one fits so: the longer the faster. A fixed rule of
    model and device, because the borders decide the last bits.

    Returns: tokens a multiple of 256 within 512..`MOST_CHUNK_TOKENS`, at most the model's context.
    """
    room = int(device_bytes * CHUNK_SHARE)
    most = min(MOST_CHUNK_TOKENS, -(-spec.max_context // STEP_TOKENS) * STEP_TOKENS)
    whole = PromptChunk(most)
    if whole.num_bytes(spec) <= room:
        return whole
    left = room - ATTENTION_TILE_TOKENS * tile_token_bytes(spec)
    fit = max(LEAST_CHUNK_TOKENS, left // token_bytes(spec) // STEP_TOKENS * STEP_TOKENS)
    return PromptChunk(min(most, fit), ATTENTION_TILE_TOKENS)


def decide_chunk(asked: int, spec: ModelSpec, is_captured: bool, device_bytes: int) -> PromptChunk:
    """Return the chunk of a load; `asked` tokens, 0 = chosen here.

    Raises: InvalidRequest for a length that cannot be.
    """
    if not 0 <= asked <= MOST_CHUNK_TOKENS:
        raise InvalidRequest(
            f"chunk_tokens is {asked}; it must lie between 1 and {MOST_CHUNK_TOKENS}, or be 0."
        )
    if not is_captured:
        return PromptChunk(asked or PLAIN_CHUNK_TOKENS)
    chosen = choose_chunk(spec, device_bytes)
    return PromptChunk(asked, chosen.tile_tokens) if asked else chosen
