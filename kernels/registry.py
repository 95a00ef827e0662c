"""Which implementation runs an operation on a device, and why. A table of plain lines.

Kernels are imported when they are chosen, so a missing optional one costs nothing. Called by
`kernels.api`; shown by `python -m kernels` and in the status of the engine.

A line is added above the line it is faster than: the first that fits the device, the encoding and
its requirement is taken.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import cast

import torch

from kernels.layouts import BYTE_ENCODINGS, VALUE_DTYPES, DenseEncoding, Encoding

ANY = "any"


@dataclass(frozen=True, slots=True)
class Line:
    """One implementation of an operation.

    Attributes:
        name: what the implementation is called, e.g. "reference".
        target: "module:attribute", imported when chosen.
        reason: why it would be taken, as half a sentence.
        device: kind of device it runs on ("cpu", "cuda"), or ANY.
        encodings: of the records or weights it reads; () = any, or it reads none.
        dtypes: of the activations it takes; () = any.
        requirement: "module:function" that returns "" if it can run here, else why not.
    """

    name: str
    target: str
    reason: str
    device: str = ANY
    encodings: tuple[DenseEncoding, ...] = ()
    dtypes: tuple[torch.dtype, ...] = ()
    requirement: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """The implementation that was taken for an operation, and why."""

    op: str
    name: str
    target: str
    reason: str

    def load(self) -> Callable[..., object]:
        """Import and return the implementation."""
        return _attribute(self.target)


_PLAIN = "plain torch runs on every device"
_CANONICAL = (
    "plain torch; a route's row has the same bits wherever its record lies on one kind of device, "
    "CPU and GPU rows agree within tolerance"
)

_NATIVE = "C++ in the canonical order; the same bits with every instruction set and any residency"

_NATIVE_DENSE = (
    "C++ over the weights as stored, in the canonical order; the same bits with every instruction "
    "set, and for a token whoever shares its step"
)

_CARD_DENSE = "cuBLAS and Triton on two-byte activations, float32 sums, weights as stored"

_CARD_ROUTE = "torch's softmax, then one Triton kernel in place of a sort; the same bits"

_GROUPED = "Triton over all experts of a layer, wherever they lie; the same bits for any residency"


def _card_line(target: str) -> Line:
    """Return the line of a dense kernel of prefill on a card."""
    return Line(
        "triton",
        target,
        _CARD_DENSE,
        device="cuda",
        dtypes=(torch.bfloat16,),
        requirement="kernels.triton:obstacle",
    )


def _native_line(target: str) -> Line:
    """Return the line of a dense C++ kernel."""
    return Line(
        "native",
        target,
        _NATIVE_DENSE,
        device="cpu",
        dtypes=(torch.float32,),
        requirement="kernels.cpu:expert_obstacle",
    )


LINES: dict[str, tuple[Line, ...]] = {
    "route": (
        Line(
            "triton",
            "kernels.triton.dense:topk_softmax",
            _CARD_ROUTE,
            device="cuda",
            requirement="kernels.triton:obstacle",
        ),
        Line("reference", "kernels.reference.routing:topk_softmax", _PLAIN),
    ),
    "expert_rows": (
        Line(
            "native",
            "kernels.cpu.experts:NativeExperts",
            _NATIVE,
            device="cpu",
            encodings=BYTE_ENCODINGS,
            requirement="kernels.cpu:expert_obstacle",
        ),
        Line(
            "reference",
            "kernels.reference.experts:ReferenceExperts",
            _CANONICAL,
            encodings=tuple(VALUE_DTYPES),
        ),
    ),
    "grouped_experts": (
        Line(
            "triton",
            "kernels.triton.grouped:TritonGrouped",
            _GROUPED,
            device="cuda",
            encodings=BYTE_ENCODINGS,
            requirement="kernels.triton:obstacle",
        ),
        Line(
            "reference",
            "kernels.reference.grouped:ReferenceGrouped",
            _PLAIN,
            encodings=tuple(VALUE_DTYPES),
        ),
    ),
    "merge_routes": (
        _native_line("kernels.cpu.dense:merge_routes"),
        Line("reference", "kernels.reference.routing:merge_routes", _PLAIN),
    ),
    "rms_norm": (
        _native_line("kernels.cpu.dense:rms_norm"),
        _card_line("kernels.triton.dense:rms_norm"),
        Line("reference", "kernels.reference.dense:rms_norm", _PLAIN),
    ),
    "rotary": (Line("reference", "kernels.reference.dense:rotary", _PLAIN),),
    "linear": (
        _native_line("kernels.cpu.dense:NativeLinear"),
        _card_line("kernels.triton.dense:CardLinear"),
        Line("reference", "kernels.reference.dense:ReferenceLinear", _PLAIN),
    ),
    "attention_step": (
        _native_line("kernels.cpu.steps:NativeAttentionStep"),
        Line("reference", "kernels.reference.steps:ReferenceAttentionStep", _PLAIN),
    ),
    "attention_chunk": (
        _card_line("kernels.triton.steps:CardAttentionChunk"),
        Line("reference", "kernels.reference.steps:ReferenceAttentionChunk", _PLAIN),
    ),
    "router_step": (
        _native_line("kernels.cpu.steps:NativeRouterStep"),
        _card_line("kernels.triton.steps:CardRouterStep"),
        Line("reference", "kernels.reference.steps:ReferenceRouterStep", _PLAIN),
    ),
    "attention_prefill": (Line("reference", "kernels.reference.dense:attention_prefill", _PLAIN),),
    "attention_decode": (Line("reference", "kernels.reference.dense:attention_decode", _PLAIN),),
}


def choose(
    op: str,
    device: str,
    *encodings: DenseEncoding | None,
    dtype: torch.dtype = torch.float32,
) -> Choice:
    """Return the best runnable implementation of `op`.

    `device` is a name ("cuda:0") or kind ("cuda"); `encodings` are those of the records or weights
    (None = it reads none); `dtype` is that of activations.

    Raises: LookupError if no line fits, with each line's reason.
    """
    kind = "cpu" if device == "fake" else device.partition(":")[0]
    refused: list[str] = []
    for line in LINES.get(op, ()):
        obstacle = _obstacle(line, kind, encodings, dtype)
        if not obstacle:
            because = "; ".join([line.reason, *refused])
            return Choice(op, line.name, line.target, because)
        refused.append(f"not {line.name}: {obstacle}")
    raise LookupError(
        f"no kernel for {op} on {device}: {'; '.join(refused) or 'unknown operation'}"
    )


def choices(device: str, encoding: Encoding | None = None) -> tuple[Choice, ...]:
    """Return the choice of every operation, in the order of the table."""
    return tuple(choose(op, device, encoding) for op in LINES)


def _obstacle(
    line: Line, kind: str, encodings: Sequence[DenseEncoding | None], dtype: torch.dtype
) -> str:
    if line.device not in (ANY, kind):
        return f"it runs on {line.device}"
    unread = {one for one in encodings if one and line.encodings and one not in line.encodings}
    if unread:
        return f"it does not read {', '.join(sorted(unread))}"
    if line.dtypes and dtype not in line.dtypes:
        return f"it does not take {dtype}"
    if not line.requirement:
        return ""
    try:
        return str(_attribute(line.requirement)())
    except Exception as problem:  # noqa: BLE001  a probe that breaks must not end a load (E-06)
        return f"its probe failed: {problem}"


def _attribute(target: str) -> Callable[..., object]:
    module, _, name = target.partition(":")
    return cast("Callable[..., object]", getattr(import_module(module), name))
