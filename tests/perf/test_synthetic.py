"""The synthetic model: the same everywhere, whole, valid, and routed as designed."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.checkpoint import files
from engine.checkpoint.ftw import FtwReader
from engine.checkpoint.verify import verify_folder
from engine.protocol.errors import BudgetError, DiskFull
from kernels.layouts import UNIT_ROWS, Encoding
from kernels.reference.records import unpack_record
from tests.perf import synthetic
from tests.perf.memory_engine import MemoryReader
from tests.perf.synthetic import main, write_folder
from tests.perf.synthetic_weights import TINY, Design, SyntheticWeights

FP8 = replace(TINY, encoding="fp8_block")
WIDE = replace(FP8, intermediate=160, hidden=384)  # two block rows, the second one partial


@pytest.fixture(scope="module", params=["bf16", "fp8_block"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny synthetic model's folder."""
    folder = tmp_path_factory.mktemp("synthetic") / "tiny"
    return write_folder(folder, replace(TINY, encoding=request.param), threads=2)


@pytest.fixture(scope="module")
def weights() -> SyntheticWeights:
    return SyntheticWeights(TINY)


def pool_of(reader: FtwReader) -> torch.Tensor:
    pool = torch.empty(reader.num_records, reader.record_bytes, dtype=torch.uint8)
    reader.read_pool(pool, lambda *_: None, lambda: False)
    return pool


def test_folder_when_written_then_the_products_own_check_passes(model: Path) -> None:
    """Index, sizes, every checksum; nothing is left beside it."""
    verified = verify_folder(model, lambda *_: None, lambda: False)
    assert verified.num_records == TINY.num_records
    assert [entry.name for entry in model.parent.iterdir()] == [model.name]


def test_folder_when_more_threads_write_it_then_every_byte_is_the_same(
    model: Path, tmp_path: Path
) -> None:
    """Draws belong to things, not to threads."""
    encoding: Encoding = FtwReader(model).layout.encoding
    again = write_folder(tmp_path / "tiny", replace(TINY, encoding=encoding), threads=5)
    for path in model.iterdir():
        assert (again / path.name).read_bytes() == path.read_bytes(), path.name


def test_folder_when_the_seed_differs_then_so_do_the_experts(tmp_path: Path) -> None:
    one, other = (
        write_folder(tmp_path / str(seed), replace(TINY, layers=1), seed=seed) for seed in (1, 2)
    )
    assert (one / "experts.bin").read_bytes() != (other / "experts.bin").read_bytes()


def test_memory_reader_when_the_bank_is_a_hole_then_its_records_are_those_of_the_file(
    model: Path, tmp_path: Path
) -> None:
    """And the hole takes no room."""
    filed = FtwReader(model)
    shape = replace(TINY, encoding=filed.layout.encoding)
    folder = write_folder(tmp_path / "hole", shape, in_memory=True)
    assert torch.equal(pool_of(MemoryReader(folder)), pool_of(filed))


@pytest.mark.linux
def test_hole_when_written_then_it_takes_no_room_on_the_disk(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "hole", TINY, in_memory=True)
    bank = (folder / "experts.bin").stat()
    assert bank.st_size == TINY.pool_bytes
    assert bank.st_blocks * 512 < bank.st_size / 8


def test_records_when_unpacked_then_sizes_are_the_designs_and_binades_many(model: Path) -> None:
    """Order errors hide where all values have one size."""
    reader = FtwReader(model)
    gate, up, down = unpack_record(reader.layout, pool_of(reader)[5])
    design = Design()
    wanted = 2.5 * design.share / (0.41 * TINY.intermediate**0.5)
    for part, std in ((gate, TINY.hidden**-0.5), (up, TINY.hidden**-0.5), (down, wanted)):
        assert float(part.std()) == pytest.approx(std, rel=0.25)
        exponents = torch.frexp(part[part != 0])[1]
        assert len(exponents.unique()) > 6


def test_scales_when_units_lie_in_one_block_then_they_share_them() -> None:
    """As a published checkpoint's blocks of 128 x 128 do; the next block has its own."""
    layout = WIDE.layout
    record = np.empty(layout.record_bytes, np.uint8)
    SyntheticWeights(WIDE).experts().fill(3, record)
    units = record[: layout.num_units * layout.unit_bytes].reshape(layout.num_units, -1)
    start = layout.unit_value_bytes
    scales = units[:, start : start + layout.unit_scale_bytes]
    block = layout.group // UNIT_ROWS
    assert (scales[:block] == scales[0]).all()
    assert (scales[block:] == scales[block]).all()
    assert (scales[0] != scales[block]).any()


def test_records_when_compared_then_no_two_are_alike(weights: SyntheticWeights) -> None:
    source = weights.experts()
    records = np.empty((TINY.num_records, TINY.layout.record_bytes), np.uint8)
    for index, record in enumerate(records):
        source.fill(index, record)
    assert len({record.tobytes() for record in records}) == TINY.num_records


def test_head_when_asked_about_a_token_alone_then_the_next_one_wins(
    weights: SyntheticWeights,
) -> None:
    """For every id of the ring, the last one included; layers only disturb this."""
    embedding, head = weights.embedding_and_head()
    best = (embedding.float() @ head.float().T).argmax(-1)
    assert torch.equal(best, (torch.arange(TINY.vocab) + 1) % TINY.vocab)


def routes(weights: SyntheticWeights) -> Iterator[torch.Tensor]:
    """Yield each layer's choice for every id, [V, K], as if layers added nothing."""
    embedding = weights.embedding_and_head()[0].float()
    for layer in range(TINY.layers):
        router = weights.layer(layer)["mlp.gate.weight"].float()
        yield (embedding @ router.T).topk(TINY.top_k, -1).indices


def test_routing_when_counted_then_it_is_skewed_and_neighbours_share(
    weights: SyntheticWeights,
) -> None:
    """Uniform routing would give each expert K/E of the tokens, and neighbours K/E in common."""
    uniform = TINY.top_k / TINY.experts
    tops = []
    for chosen in routes(weights):
        used = torch.zeros(TINY.vocab, TINY.experts).scatter_(1, chosen, 1.0)
        share = used.mean(0)
        assert float(share.max()) > 1.5 * uniform
        assert float(share.min()) < 0.6 * uniform
        shared = (used * used.roll(1, 0)).sum(1).mean() / TINY.top_k
        assert float(shared) > 1.5 * uniform
        tops.append(int(share.argmax()))
    assert len(set(tops)) > 1  # ranked anew in each layer


def test_write_when_there_is_no_room_then_both_figures_and_nothing_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(files, "free_bytes", lambda _: 1 << 20)
    with pytest.raises(DiskFull, match=r"MiB are needed .* 1\.0 MiB are free"):
        write_folder(tmp_path / "tiny", TINY)
    assert main([str(tmp_path / "tiny"), "--tiny"]) == 1
    assert "are needed" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_write_when_the_folder_is_memory_then_what_the_machine_has_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A RAM-backed folder may promise more than there is; filling it would stop the machine."""
    monkeypatch.setattr(synthetic, "is_in_memory", lambda _: True)
    monkeypatch.setattr(synthetic, "host_memory", lambda: (64 << 20, 32 << 20))
    with pytest.raises(BudgetError, match="32"):
        write_folder(tmp_path / "tiny", TINY)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.linux
@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="needs a RAM-backed folder")
def test_memory_when_a_folder_is_ram_backed_then_it_is_known() -> None:
    assert synthetic.is_in_memory(Path("/dev/shm"))
    assert not synthetic.is_in_memory(Path(__file__).parent)


def test_main_when_a_folder_is_there_then_it_is_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "tiny"
    for layers in ("1", "2"):
        assert main([str(folder), "--tiny", "--layers", layers, "--experts", "8"]) == 0
    assert FtwReader(folder).num_records == 16
    assert "2 layers x 8 experts" in capsys.readouterr().out
