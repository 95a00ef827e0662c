"""Compile CUDA sources for one card by NVRTC, which torch's CUDA build brings. Needs no GPU.

Knows no kernel: a source is a name below `source/`, with its constants as defines. Compiled code is
kept in a folder under a key of everything that went into it. Source: NVRTC API.
"""

import ctypes
import hashlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from kernels.device.base import KernelError

SOURCES = Path(__file__).with_name("source")
SHARED_HEADERS = Path(__file__).parents[1] / "csrc"  # what C++ and CUDA kernels both follow
HEADER_NAMES = ("canonical.h", "mailbox.h")
FLAGS = ("-std=c++17", "--fmad=false")  # sums are as written, fused only where the source says so
_LOG_CHARACTERS = 8000
_PLACES = {
    "linux": (("nvidia", "*/lib/libnvrtc.so.*"), ("torch", "lib/libnvrtc*.so*")),
    "win32": (
        ("nvidia", "*/bin/nvrtc64_*.dll"),
        ("nvidia", "*/bin/x86_64/nvrtc64_*.dll"),
        ("torch", "lib/nvrtc64_*.dll"),
    ),
}
"""Where wheels put the library, by package."""


class CompileError(KernelError):
    """A source that NVRTC does not take; the message holds its log."""


def source_names() -> tuple[str, ...]:
    """Return the sources that there are."""
    return tuple(sorted(path.name for path in SOURCES.glob("*.cu")))


def headers() -> dict[str, Path]:
    """Return the headers that sources may include, by the name they are included by."""
    own = {path.name: path for path in sorted(SOURCES.glob("*.cuh"))}
    return own | {name: SHARED_HEADERS / name for name in HEADER_NAMES}


def compile_source(
    name: str, defines: Mapping[str, int], arch: str, cache_folder: Path | None = None
) -> bytes:
    """Return the machine code (cubin) of `source/NAME` for an architecture such as "sm_90".

    Raises: CompileError with the compiler's log; OSError if NVRTC is not there.
    """
    compiler = open_nvrtc()
    texts = {place: path.read_bytes() for place, path in headers().items()}
    source = (SOURCES / name).read_bytes()
    options = [
        f"--gpu-architecture={arch}",
        *FLAGS,
        *(f"-D{key}={value}" for key, value in sorted(defines.items())),
    ]
    facts = "\0".join((compiler.version, *options, name, *texts)).encode()
    digest = hashlib.sha256(b"\0".join((facts, source, *texts.values()))).hexdigest()
    kept = cache_folder and cache_folder / f"{Path(name).stem}-{arch}-{digest[:32]}"
    if kept and kept.exists():
        return kept.read_bytes()
    image = compiler.compile(name, source, texts, options)
    if kept:
        with suppress(OSError):  # then the next start compiles again
            _write_atomically(kept, image)
    return image


class Nvrtc:
    """The compiler library."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.nvrtcGetErrorString.restype = c_char_p
        major, minor = c_int(), c_int()
        self._check(library.nvrtcVersion(byref(major), byref(minor)))
        self.version = f"{major.value}.{minor.value}"

    def compile(
        self, name: str, source: bytes, texts: Mapping[str, bytes], options: Sequence[str]
    ) -> bytes:
        """Compile a source whose includes are `texts`. Raises CompileError with the log."""
        program = c_void_p()
        count = len(texts)
        self._check(
            self._library.nvrtcCreateProgram(
                byref(program),
                c_char_p(source),
                c_char_p(name.encode()),
                count,
                (c_char_p * count)(*texts.values()),
                (c_char_p * count)(*(place.encode() for place in texts)),
            )
        )
        try:
            words = (c_char_p * len(options))(*(option.encode() for option in options))
            code = self._library.nvrtcCompileProgram(program, len(options), words)
            if code:
                log = self._read(program, "ProgramLog").decode("utf-8", "replace")
                raise CompileError(
                    f"{name} does not compile ({' '.join(options)}): {self._words(code)}\n"
                    f"{log[:_LOG_CHARACTERS]}"
                )
            return self._read(program, "CUBIN")
        finally:
            self._library.nvrtcDestroyProgram(byref(program))

    def _read(self, program: c_void_p, what: str) -> bytes:
        size = c_size_t()
        self._check(self._library[f"nvrtcGet{what}Size"](program, byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        self._check(self._library[f"nvrtcGet{what}"](program, buffer))
        return buffer.raw

    def _check(self, code: int) -> None:
        if code:
            raise CompileError(f"NVRTC: {self._words(code)}")

    def _words(self, code: int) -> str:
        words: bytes = self._library.nvrtcGetErrorString(code)
        return words.decode("ascii", "replace")


@cache
def open_nvrtc() -> Nvrtc:
    """Return the first NVRTC that loads: torch's, then the system's. Raises OSError without one."""
    for candidate in _candidates():
        with suppress(OSError):
            _load_other_half(Path(candidate))
            return Nvrtc(ctypes.CDLL(candidate))
    raise OSError("the CUDA compiler library (NVRTC) is not there; torch's CUDA build brings it")


def _candidates() -> Iterator[str]:
    """Name the files that may be NVRTC, best first."""
    windows = sys.platform == "win32"
    for package, pattern in _PLACES["win32" if windows else "linux"]:
        spec = find_spec(package)
        for place in (spec and spec.submodule_search_locations) or ():
            for found in sorted(Path(place).glob(pattern), reverse=True):
                if "builtins" not in found.name and ".alt." not in found.name:
                    yield str(found)
    for major in (13, 12):
        yield f"nvrtc64_{major}0_0.dll" if windows else f"libnvrtc.so.{major}"


def _load_other_half(library: Path) -> None:
    """Load what NVRTC itself asks for by a bare name: it is then found where the library lies."""
    if library.is_absolute():
        for half in library.parent.glob("*nvrtc-builtins*"):
            if ".alt." not in half.name and not half.name.endswith(".lib"):
                ctypes.CDLL(str(half))


def _write_atomically(target: Path, content: bytes) -> None:
    """Write beside the target and rename: a reader sees the whole file or none."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
