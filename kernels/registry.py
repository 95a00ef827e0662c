"""Which implementation runs an operation on a device, and why. A table of plain lines.

Kernels are imported when they are chosen, so a missing optional one costs nothing. Called by
`kernels.api`; shown by `python -m kernels` and in the status of the engine.

A line is added above the line it is faster than: the first that fits the device, the encoding and
its requirement is taken.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import cast

from kernels.layouts import BYTE_ENCODINGS, VALUE_DTYPES, Encoding

ANY = "any"


@dataclass(frozen=True, slots=True)
class Line:
    """One implementation of an operation.

    Attributes:
        name: what the implementation is called, e.g. "reference".
        target: "module:attribute", imported when chosen.
        reason: why it would be taken, as half a sentence.
        device: kind of device it runs on ("cpu", "cuda"), or ANY.
        encodings: record encodings it reads; () = reads no records.
        requirement: "module:function" that returns "" if it can run here, else why not.
    """

    name: str
    target: str
    reason: str
    device: str = ANY
    encodings: tuple[Encoding, ...] = ()
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

LINES: dict[str, tuple[Line, ...]] = {
    "route": (Line("reference", "kernels.reference.routing:topk_softmax", _PLAIN),),
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
    "merge_routes": (Line("reference", "kernels.reference.routing:merge_routes", _PLAIN),),
    "rms_norm": (Line("reference", "kernels.reference.dense:rms_norm", _PLAIN),),
    "rotary": (Line("reference", "kernels.reference.dense:rotary", _PLAIN),),
    "linear": (Line("reference", "kernels.reference.dense:linear", _PLAIN),),
    "attention_prefill": (Line("reference", "kernels.reference.dense:attention_prefill", _PLAIN),),
    "attention_decode": (Line("reference", "kernels.reference.dense:attention_decode", _PLAIN),),
}


def choose(op: str, device: str, encoding: Encoding | None = None) -> Choice:
    """Return the best runnable implementation of `op`.

    `device` is a name ("cuda:0") or kind ("cuda"); `encoding` is that of the records, if the
    operation reads any.

    Raises: LookupError if no line fits, with each line's reason.
    """
    kind = "cpu" if device == "fake" else device.partition(":")[0]
    refused: list[str] = []
    for line in LINES.get(op, ()):
        obstacle = _obstacle(line, kind, encoding)
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


def _obstacle(line: Line, kind: str, encoding: Encoding | None) -> str:
    if line.device not in (ANY, kind):
        return f"it runs on {line.device}"
    if encoding is not None and line.encodings and encoding not in line.encodings:
        return f"it does not read {encoding}"
    return str(_attribute(line.requirement)()) if line.requirement else ""


def _attribute(target: str) -> Callable[..., object]:
    module, _, name = target.partition(":")
    return cast("Callable[..., object]", getattr(import_module(module), name))
