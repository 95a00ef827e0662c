"""A whole decode step of a model whose layers all have experts: its kernels in one linear chain.

Puts the launchers of this package together for one number of rows. Knows no requests and no policy.
Built by the loader, recorded by `engine.runner.captured`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.cuda.dense import (
    DenseBuffers,
    DenseKernels,
    KernelModule,
    ModelWeights,
    StepInputs,
)
from kernels.cuda.experts import DEFAULT_WORKERS, MoeKernels, MoeLayerWeights, MoeMemory
from kernels.cuda.moe_state import MoeCounts, MoeScratch, MoeState
from kernels.cuda.shape import DecodeShape
from kernels.cuda.tuning import Card
from kernels.reference.dense import rotary_frequencies, rotary_tables


@dataclass(frozen=True, slots=True)
class StepAddresses:
    """Memory that others own, as the device sees it; it stays where it is.

    Attributes:
        kv: page 0 of the keys and values, bf16.
        slots: the first slot of the expert cache.
        mail, reply: the mailbox of the CPU pool.
        report: a `kernels.cuda.dense.StepReport` in host memory.
    """

    kv: int
    slots: int
    mail: int
    reply: int
    report: int


@dataclass(frozen=True, slots=True, eq=False)
class StepModel:
    """What is computed with, for every number of rows the same.

    Attributes:
        weights: everything but the experts.
        layers: each layer's router, and where its experts lie.
        state: residency, policy, counters.
        scratch: of the layers, for as many rows as there can be.
        steps: int64 [1], steps that were finished.
    """

    weights: ModelWeights
    layers: Sequence[MoeLayerWeights]
    state: MoeState
    scratch: MoeScratch
    steps: Tensor


class DecodeStep:
    """The kernels of one decode step over `shape.rows` rows.

    `with_hash` mixes each layer's output into the hash counter, by which tests compare runs.

    Attributes:
        inputs: what the host writes before each step.
        outputs: x, logits and ids of the step; the ids are written over those that it began with,
            and its positions are raised by one: launched again, it goes on with its best tokens.

    Raises: ValueError for parts that do not fit the shape.
    """

    def __init__(  # noqa: PLR0913 - the parts of a step, each from another owner
        self,
        shape: DecodeShape,
        modules: tuple[KernelModule, KernelModule],
        model: StepModel,
        addresses: StepAddresses,
        card: Card,
        pages_of_a_row: int,
        workers: int = DEFAULT_WORKERS,
        with_hash: bool = False,
    ) -> None:
        """Take the compiled `dense.cu` and `moe.cu`, in this order."""
        device = model.state.owner.device
        self._num_layers, self._with_hash = shape.num_layers, with_hash
        self.inputs = StepInputs(shape.rows, pages_of_a_row, device)
        self.outputs = DenseBuffers(shape, device)
        self.outputs.ids = self.inputs.token_ids  # the next step's, unless the host says otherwise
        self._dense = DenseKernels(
            shape, modules[0], model.weights, self.inputs, self.outputs, addresses.kv, card
        )
        memory = MoeMemory(self.outputs.x, addresses.slots, addresses.mail, addresses.reply)
        self._moe = MoeKernels(shape, modules[1], model.state, model.scratch, memory, workers)
        following = (*model.layers[1:], None)
        self._layers = [
            self._moe.bind(number, *pair)
            for number, pair in enumerate(zip(model.layers, following, strict=True))
        ]
        timeouts = MoeCounts._fields.index("timeouts")
        counters = model.state.counters
        self._finish = self._dense.finish(
            counters, counters[timeouts : timeouts + 1], model.steps, addresses.report
        )
        self._model = model  # addresses of its tensors are in the launches

    def launch(self, stream: int) -> None:
        """Queue the step: embedding, layers, head, best ids, report."""
        dense = self._dense
        dense.embed(stream)
        for number, layer in enumerate(self._layers):
            dense.qkv(number, stream)
            dense.attention(number, stream)
            dense.output(number, stream)
            self._moe.launch(layer, stream)
            if self._with_hash:
                self._moe.launch_hash(stream)
        dense.head(stream)
        self._finish(stream)


def rotary_table(max_context: int, head_dim: int, theta: float, device: torch.device) -> Tensor:
    """Return cosine and sine of every position, the very numbers that prompts are rotated by.

    Shapes: float32 [max_context, D / 2, 2].
    """
    positions = torch.arange(max_context, device=device)
    frequencies = rotary_frequencies(head_dim, theta, device)
    cos, signed_sin = rotary_tables(positions, frequencies, torch.float32)
    half = head_dim // 2
    return torch.stack((cos[:, 0, half:], signed_sin[:, 0, half:]), dim=-1).contiguous()
