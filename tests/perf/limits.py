"""What a machine could do at best with the bytes that a token moves. Arithmetic only.

Decode: every missed byte is read from main memory once, by the link or by the CPU, at D, the best
rate of both together; everything else is read from the device's memory at B. The two overlap, so
the limit is the longer of them. Where the "device" is the CPU itself, all bytes come out of main
memory.
"""

from dataclasses import dataclass

GB = 1e9


@dataclass(frozen=True, slots=True)
class Rates:
    """What the probe measured, in bytes/s.

    Attributes:
        main: D, of main memory: the most that the CPU, or CPU and link together, read.
        device: B, of the device's own memory; 0 = it has none.
        link: P, of copies to the device; 0 = there is none.
    """

    main: float
    device: float = 0.0
    link: float = 0.0


@dataclass(frozen=True, slots=True)
class ModelBytes:
    """What a model's parts weigh.

    Attributes:
        record: one expert.
        pool: all experts.
        dense: what every token reads besides its experts; no embedding table.
        kv_token: keys and values of one token.
        layers: layers with experts.
        top_k: experts of one token in one layer.
    """

    record: int
    pool: int
    dense: int
    kv_token: int
    layers: int
    top_k: int

    @property
    def routed(self) -> int:
        """Expert bytes of one token."""
        return self.layers * self.top_k * self.record


def missed_bytes(model: ModelBytes, hit_share: float) -> float:
    """Return the expert bytes of one token that are not on the device."""
    return (1.0 - hit_share) * model.routed


def decode_limit_s(
    model: ModelBytes, rates: Rates, missed: float, hit: float, context_tokens: float
) -> float:
    """Return the least seconds of one step.

    Units: `missed` and `hit` are expert bytes of the step, `context_tokens` those of all its rows.
    """
    near = model.dense + hit + context_tokens * model.kv_token
    if not rates.device:
        return (near + missed) / rates.main
    return max(missed / rates.main, near / rates.device)


def prefill_limit_s(model: ModelBytes, rates: Rates, resident_share: float) -> float:
    """Return the least seconds of a prompt that needs every expert: what is missing, over the link.

    0 where there is no link. Compute is not part of it.
    """
    return (1.0 - resident_share) * model.pool / rates.link if rates.link else 0.0


def beyond_us(seconds: float, limit_s: float, layers: int) -> float:
    """Return microseconds per layer above the limit."""
    return (seconds - limit_s) / layers * 1e6
