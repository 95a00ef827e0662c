"""Expert rows on the CPU by the C++ kernels: the fast form of `kernels.reference.experts`.

Decode follows the canonical order (`kernels/csrc/canonical.h`) on every instruction-set tier, so a
row's bits depend on its record and input only. Prefill is the reference's: matrix products. Sizes
are checked here, because the kernels take addresses. Chosen by `kernels.registry`.
"""

from collections.abc import Sequence

import torch

from kernels.cpu import IsaTier, load_native
from kernels.layouts import RecordLayout
from kernels.reference.experts import ReferenceExperts

MAX_RECORDS = 1024


class NativeExperts:
    """Computes with some experts at a time: `load` their records, then `row`, `each` or `rows`.

    Keeps no copy: a record is read when a row is computed, so it must stay as it is until then.
    Holds scratch, so every thread needs an object of its own. The interpreter's lock is released
    while it computes.

    Attributes:
        capacity: records that one `load` takes.

    Raises: ValueError for a device, activation dtype or tier that it does not have.
    """

    capacity = MAX_RECORDS

    def __init__(
        self,
        layout: RecordLayout,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        tier: IsaTier | None = None,
    ) -> None:
        if device.type != "cpu":
            raise ValueError(f"the C++ kernels run on the CPU, not on {device}")
        if dtype not in (torch.float32, torch.bfloat16):
            raise ValueError(f"the C++ kernels do not round activations to {dtype}")
        self.layout = layout
        self._dtype = dtype
        self._width = (layout.hidden,)
        self._record_shape = (layout.record_bytes,)
        self._records: Sequence[torch.Tensor] = ()
        self._addresses: list[int] = []
        self._prefill: ReferenceExperts | None = None
        native = load_native()
        self._native = native.Experts(
            layout.encoding,
            layout.hidden,
            layout.intermediate,
            layout.group,
            dtype == torch.bfloat16,
            tier or native.isa_tier(),
        )

    def load(self, records: Sequence[torch.Tensor]) -> None:
        """Take 1 to `capacity` records, each uint8 [record_bytes] in host memory.

        Raises: ValueError for any other tensor.
        """
        for record in records:
            self._check(record, self._record_shape, torch.uint8)
        self._records = records
        self._addresses = [record.data_ptr() for record in records]

    def row(self, x: torch.Tensor, place: int = 0) -> torch.Tensor:
        """Return one token's row of the loaded record number `place`.

        Shapes: x [H] -> [H] float32.
        """
        return self._compute(self._addresses[place : place + 1], x)[0]

    def each(self, x: torch.Tensor) -> torch.Tensor:
        """Return one token's row of every loaded record; bit for bit what `row` gives for each.

        Shapes: x [H] -> [B, H] float32.
        """
        return self._compute(self._addresses, x)

    def into(
        self,
        out: torch.Tensor,
        x: torch.Tensor,
        routes: Sequence[Sequence[tuple[int, int]]],
    ) -> None:
        """Write each loaded record's rows of some tokens, its weights read once for up to 8.

        `routes` names the (token, k) of each record.

        Shapes: x [T, H] -> out[token, k] of out [T, K, H] float32; bit for bit what `row` gives.
        Raises: ValueError if `routes` does not go with the records, x or out.
        """
        x = x.to(torch.float32).contiguous()
        num_tokens, top_k = out.shape[:2]
        self._check(x, (num_tokens, *self._width), torch.float32)
        self._check(out, (num_tokens, top_k, *self._width), torch.float32)
        pairs = [
            (record, token, token * top_k + k)
            for record, chosen in zip(self._addresses, routes, strict=True)
            for token, k in chosen
            if 0 <= token < num_tokens and 0 <= k < top_k
        ]
        if len(pairs) != sum(map(len, routes)):
            raise ValueError(f"a route is not within {num_tokens} tokens of {top_k} experts")
        self._native.routes(pairs, x.data_ptr(), out.data_ptr())

    def rows(self, x: torch.Tensor) -> torch.Tensor:
        """Return the first loaded expert's rows for its tokens of a prompt chunk.

        Shapes: x [R, H] -> [R, H] float32.
        """
        if self._prefill is None:
            self._prefill = ReferenceExperts(self.layout, torch.device("cpu"), self._dtype)
        self._prefill.load(self._records[:1])
        return self._prefill.rows(x)

    def _compute(self, addresses: list[int], x: torch.Tensor) -> torch.Tensor:
        x = x.to(torch.float32).contiguous()
        self._check(x, self._width, torch.float32)
        out = torch.empty(len(addresses), self.layout.hidden)
        self._native.each(addresses, x.data_ptr(), out.data_ptr())
        return out

    @staticmethod
    def _check(tensor: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        if (
            tensor.shape != shape
            or tensor.dtype != dtype
            or not tensor.is_contiguous()
            or not tensor.is_cpu
        ):
            raise ValueError(
                f"expected {dtype} {list(shape)} in host memory, contiguous; "
                f"got {tensor.dtype} {list(tensor.shape)} on {tensor.device}"
            )
