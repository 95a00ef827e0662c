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

    def routes(self, x: torch.Tensor, tokens: Sequence[Sequence[int]]) -> torch.Tensor:
        """Return the rows of several tokens, each loaded record's weights read once for up to 8.

        `tokens` names the rows of x that each loaded record computes.

        Shapes: x [T, H] -> [R, H] float32, record by record; bit for bit what `row` gives.
        Raises: ValueError if `tokens` does not go with the records or with x.
        """
        x = x.to(torch.float32).contiguous()
        self._check(x, (len(x), *self._width), torch.float32)
        if len(tokens) != len(self._addresses):
            raise ValueError(f"tokens for {len(tokens)} of {len(self._addresses)} records")
        pairs = [
            (record, token)
            for record, chosen in zip(self._addresses, tokens, strict=True)
            for token in chosen
        ]
        if not all(0 <= token < len(x) for _, token in pairs):
            raise ValueError(f"a token is not within 0..{len(x) - 1}")
        out = torch.empty(len(pairs), self.layout.hidden)
        routes = [(record, token, place) for place, (record, token) in enumerate(pairs)]
        self._native.routes(routes, x.data_ptr(), out.data_ptr())
        return out

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
