"""CUDA sources compile for every kind of card, without one; what was compiled is kept."""

import pytest

from kernels.cuda import compile as compiling
from kernels.cuda import cuda_obstacle
from kernels.cuda.__main__ import built_in, defines_of, find_nvcc, main, qwen3_30b
from kernels.cuda.compile import CompileError, compile_source, headers, open_nvrtc, source_names


def _has_nvrtc() -> bool:
    try:
        open_nvrtc()
    except OSError:
        return False
    return True


needs_nvrtc = pytest.mark.skipif(
    not _has_nvrtc(), reason="needs NVRTC: torch's CUDA build or pip install nvidia-cuda-nvrtc"
)
needs_compiler = pytest.mark.skipif(
    not (_has_nvrtc() or find_nvcc()), reason="needs nvcc (pip install nvidia-cuda-nvcc) or NVRTC"
)


class FakeNvrtc:
    """Compiles by counting."""

    def __init__(self, version: str = "13.0") -> None:
        self.version = version
        self.calls: list[tuple[str, tuple[str, ...]]] = []

    def compile(self, name, source, texts, options):
        self.calls.append((name, tuple(options)))
        return b"cubin %d" % len(self.calls)


@pytest.fixture
def nvrtc(monkeypatch):
    fake = FakeNvrtc()
    monkeypatch.setattr(compiling, "open_nvrtc", lambda: fake)
    return fake


def test_compile_when_nothing_changed_takes_what_is_kept(nvrtc, tmp_path):
    """A second start compiles nothing; a missing folder is made."""
    place = tmp_path / "not" / "there"
    first = compile_source("dense.cu", {"A": 1}, "sm_90", place)
    assert compile_source("dense.cu", {"A": 1}, "sm_90", place) == first == b"cubin 1"
    assert len(nvrtc.calls) == 1
    assert [path.name[:11] for path in place.iterdir()] == ["dense-sm_90"]


@pytest.mark.parametrize("change", ["define", "card", "compiler", "source", "header"])
def test_compile_when_anything_differs_compiles_anew(nvrtc, tmp_path, monkeypatch, change):
    """Everything that code depends on is in the key."""
    sources = tmp_path / "source"
    sources.mkdir()
    (sources / "some.cu").write_text("a")
    (sources / "some.cuh").write_text("b")
    monkeypatch.setattr(compiling, "SOURCES", sources)
    compile_source("some.cu", {"A": 1}, "sm_90", tmp_path)
    if change == "compiler":
        nvrtc.version = "13.1"
    if change in ("source", "header"):
        (sources / ("some.cu" if change == "source" else "some.cuh")).write_text("c")
    compile_source(
        "some.cu",
        {"A": 2 if change == "define" else 1},
        "sm_89" if change == "card" else "sm_90",
        tmp_path,
    )
    assert len(nvrtc.calls) == 2


def test_compile_when_the_folder_cannot_be_written_still_compiles(nvrtc, tmp_path):
    """A full or read-only disk costs time, not the start."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert compile_source("dense.cu", {}, "sm_90", blocked) == b"cubin 1"


def test_compile_when_asked_never_fuses_by_itself(nvrtc):
    """Sums are as written: results would depend on the compiler's mood otherwise."""
    compile_source("dense.cu", {"B": 2, "A": 1}, "sm_86")
    assert nvrtc.calls[0][1] == (
        "--gpu-architecture=sm_86", "-std=c++17", "--fmad=false", "-DA=1", "-DB=2",
    )  # fmt: skip


def test_headers_when_listed_are_there():
    """NVRTC gets them as texts: no include path, no trouble with odd folder names."""
    assert {"common.cuh", "canonical.h", "mailbox.h"} <= set(headers())
    assert all(path.is_file() for path in headers().values())
    assert "dense.cu" in source_names()


@needs_nvrtc
def test_compile_when_a_source_is_wrong_says_where(tmp_path, monkeypatch):
    """The compiler's own words, with file and line."""
    (tmp_path / "wrong.cu").write_text('#include "some.cuh"\nint broken = missing;\n')
    (tmp_path / "some.cuh").write_text("\n")
    monkeypatch.setattr(compiling, "SOURCES", tmp_path)
    with pytest.raises(CompileError, match=r"wrong\.cu\(2\).*missing"):
        compile_source("wrong.cu", {}, "sm_90")


@needs_nvrtc
def test_compile_when_real_gives_machine_code(tmp_path):
    """An ELF file with the kernels' names."""
    shape = built_in(1)
    image = compile_source("dense.cu", defines_of("dense.cu", shape), "sm_90", tmp_path)
    assert image.startswith(b"\x7fELF")
    assert b"attention_decode" in image


@needs_compiler
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_sources_when_compiled_for_two_kinds_of_cards_pass(capsys):
    """CUDA sources compile: on both sides of every condition on the card, for 1 and 8 rows."""
    failures = main(["--quick"])
    said = capsys.readouterr().out
    assert failures == 0, said
    assert said.count(": compiles") == 2 * (2 * 3 * 2 + 1)


def test_main_when_there_is_no_nvcc_says_how_to_get_one(monkeypatch, capsys):
    """And ends with an error, not with nothing tried."""
    monkeypatch.setattr("kernels.cuda.__main__.find_nvcc", lambda: "")
    assert main(["--nvcc"]) == 1
    assert "pip install" in capsys.readouterr().err


def test_obstacle_when_there_is_no_driver_or_compiler_names_it(monkeypatch):
    """The registry shows half a sentence."""

    def missing():
        raise OSError("no such library")

    monkeypatch.setattr("kernels.cuda.open_driver", missing)
    assert cuda_obstacle() == "this machine has no working NVIDIA driver"
    monkeypatch.setattr("kernels.cuda.open_driver", lambda: None)
    monkeypatch.setattr("kernels.cuda.open_nvrtc", missing)
    assert "NVRTC" in cuda_obstacle()
    monkeypatch.setattr("kernels.cuda.open_nvrtc", lambda: None)
    assert cuda_obstacle() == ""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rows": 9}, "9 rows"),
        ({"head_dim": 80}, "head size 80"),
        ({"head_dim": 288}, "head size 288"),
        ({"num_kv_heads": 5}, "32 heads"),
        ({"splits": 0}, "0 parts"),
        ({"top_k": 129}, "top 129"),
        ({"dense_group": 100}, "blocks of 100"),
    ],
)
def test_shape_when_kernels_cannot_take_it_says_why(change, words):
    """The loader then takes the reference path and shows the half sentence."""
    import dataclasses

    with pytest.raises(ValueError, match=words):
        dataclasses.replace(qwen3_30b(1), **change)
