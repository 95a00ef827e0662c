"""An engine whose synthetic experts are made in its own pool: no file holds them.

For depths at which a model does not fit into memory twice, as a RAM-backed file and as the pool.
Everything else is `python -m engine`. The folder comes from `tests.perf.synthetic --in-memory`.
"""

from collections.abc import Callable
from functools import partial

import torch

from engine.checkpoint.ftw import FtwReader
from engine.loader.open import open_model
from engine.pipe.host import Host
from engine.pipe.stdio import claim_stdout
from engine.protocol.errors import Cancelled, ExitCode
from engine.service import EngineService
from engine.settings import read_settings
from engine.system import die_with_parent, hard_exit, usable_cores
from tests.perf.synthetic_weights import SyntheticWeights, run_all


class MemoryReader(FtwReader):
    """A folder whose bank is a hole: the records are made where they will lie."""

    def read_pool(
        self,
        out: torch.Tensor,
        progress: Callable[[int, int], None],
        cancelled: Callable[[], bool],
    ) -> None:
        """Make every expert in `out`, uint8 [num_records, record_bytes]. Raises Cancelled."""
        threads = usable_cores()
        source = SyntheticWeights.from_config(self.config, threads).experts()
        records = out.numpy()

        def fill(record: int) -> None:
            if cancelled():
                raise Cancelled("Loading was cancelled.")
            source.fill(record, records[record])

        for layer in range(self.num_moe_layers):
            first = layer * self.num_experts
            run_all(fill, range(first, first + self.num_experts), threads)
            progress((first + self.num_experts) * self.record_bytes, self.pool_bytes)


def main() -> int:
    """Serve until asked to stop. Returns the exit code."""
    protocol_fd = claim_stdout()
    die_with_parent()
    settings = read_settings()
    open_here = partial(open_model, open_reader=MemoryReader)
    host = Host(
        lambda emit: EngineService(emit, settings, open_here), settings.heartbeat_s, 0, protocol_fd
    )
    host.run()
    return ExitCode.OK


if __name__ == "__main__":
    hard_exit(main())
