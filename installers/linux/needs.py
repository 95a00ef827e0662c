"""What a Linux build needs from the system it is installed on, read from the build itself.

Every library that a bundled one names and that is not bundled must be in `PROVIDERS`; one that is
not stops the packaging, so that a dependency is never found out about by a user (case P-03). The
versions of libc and libstdc++ are the highest ones that the build's symbols ask for.
"""

import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

# Library -> package of Debian and Ubuntu. RPM systems find a package by the library's name.
PROVIDERS = {
    "libEGL.so.1": "libegl1",
    "libGL.so.1": "libgl1",
    "libX11-xcb.so.1": "libx11-xcb1",
    "libX11.so.6": "libx11-6",
    "libbrotlicommon.so.1": "libbrotli1",
    "libbrotlidec.so.1": "libbrotli1",
    "libdbus-1.so.3": "libdbus-1-3",
    "libexpat.so.1": "libexpat1",
    "libfontconfig.so.1": "libfontconfig1",
    "libfreetype.so.6": "libfreetype6",
    "libglib-2.0.so.0": "libglib2.0-0 | libglib2.0-0t64",
    "libgssapi_krb5.so.2": "libgssapi-krb5-2",
    "libgthread-2.0.so.0": "libglib2.0-0 | libglib2.0-0t64",
    "libwayland-client.so.0": "libwayland-client0",
    "libwayland-cursor.so.0": "libwayland-cursor0",
    "libxcb-cursor.so.0": "libxcb-cursor0",
    "libxcb-icccm.so.4": "libxcb-icccm4",
    "libxcb-image.so.0": "libxcb-image0",
    "libxcb-keysyms.so.1": "libxcb-keysyms1",
    "libxcb-randr.so.0": "libxcb-randr0",
    "libxcb-render-util.so.0": "libxcb-render-util0",
    "libxcb-render.so.0": "libxcb-render0",
    "libxcb-shape.so.0": "libxcb-shape0",
    "libxcb-shm.so.0": "libxcb-shm0",
    "libxcb-sync.so.1": "libxcb-sync1",
    "libxcb-util.so.1": "libxcb-util1",
    "libxcb-xfixes.so.0": "libxcb-xfixes0",
    "libxcb-xkb.so.1": "libxcb-xkb1",
    "libxcb.so.1": "libxcb1",
    "libxkbcommon-x11.so.0": "libxkbcommon-x11-0",
    "libxkbcommon.so.0": "libxkbcommon0",
    "libz.so.1": "zlib1g",
    "libzstd.so.1": "libzstd1",
}
C_LIBRARY = {
    "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1",
    "libresolv.so.2", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1",
}  # fmt: skip
CXX_LIBRARY = {"libstdc++.so.6", "libgcc_s.so.1"}
# The first GCC whose libstdc++ has a symbol version.
GCC_OF = {26: 9, 27: 9, 28: 10, 29: 11, 30: 12, 31: 13, 32: 13, 33: 14, 34: 15}
OLDEST_GCC = 9
# Opened by name at run time, so no library says that it needs them: OpenGL by Qt, certificates by
# downloads. Without CJK letters the Chinese window would be empty boxes, so those are recommended.
ALSO = ("ca-certificates", "libegl1", "libgl1")
ALSO_RPM = ("ca-certificates", "libEGL.so.1()(64bit)", "libGL.so.1()(64bit)")
RECOMMENDED = ("fonts-noto-cjk",)


class UnknownLibrary(Exception):
    """The build needs a library that nobody has decided about."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What must be on the system.

    Attributes:
        libraries: names of libraries that are not bundled, C and C++ ones left out.
        glibc: highest version asked for, like (2, 34).
        gcc: release of GCC whose libstdc++ is new enough.
    """

    libraries: tuple[str, ...]
    glibc: tuple[int, int]
    gcc: int

    def deb(self) -> list[str]:
        """Return the dependencies of a .deb."""
        packages = {*ALSO, *(PROVIDERS[name] for name in self.libraries)}
        libc = f"libc6 (>= {self.glibc[0]}.{self.glibc[1]})"
        return [libc, f"libstdc++6 (>= {self.gcc})", "libgcc-s1", *sorted(packages)]

    def rpm(self) -> list[str]:
        """Return the dependencies of an .rpm: the libraries themselves."""
        libc = f"libc.so.6(GLIBC_{self.glibc[0]}.{self.glibc[1]})(64bit)"
        names = (f"{name}()(64bit)" for name in (*CXX_LIBRARY, *self.libraries))
        return [libc, *sorted({*ALSO_RPM, *names})]


def needs_of(build: Path) -> Needs:
    """Read all programs and libraries of a build.

    Raises: UnknownLibrary naming library and the file that wants it.
    """
    files = list(_elf_files(build))
    bundled = {path.name for path in build.rglob("*") if ".so" in path.name}
    wanted: dict[str, str] = {}
    versions: set[str] = set()
    for path, text in _dumps(files):
        versions.update(re.findall(r"\b(?:GLIBC|GLIBCXX)_[0-9.]+", text))
        for name in re.findall(r"NEEDED +(\S+)", text):
            wanted.setdefault(name, path)
    missing = set(wanted) - bundled - C_LIBRARY - CXX_LIBRARY
    if unknown := sorted(missing - set(PROVIDERS)):
        lines = "; ".join(f"{name} (wanted by {wanted[name]})" for name in unknown)
        raise UnknownLibrary(f"Bundle it, drop what wants it, or name its package: {lines}")
    glibc = _highest(versions, "GLIBC_")
    minor = max((v[2] for v in _numbers(versions, "GLIBCXX_") if len(v) > 2), default=0)
    gcc = GCC_OF.get(minor, OLDEST_GCC if minor < min(GCC_OF) else max(GCC_OF.values()))
    return Needs(tuple(sorted(missing)), glibc, gcc)


def _elf_files(build: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(build):
        for name in names:
            path = Path(folder) / name
            if path.is_symlink() or not (".so" in name or os.access(path, os.X_OK)):
                continue
            with path.open("rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield path


def _dumps(files: list[Path]) -> Iterator[tuple[str, str]]:
    """Yield (file, its dynamic section as text); objdump is there, the freezer needs it too."""
    for path in files:
        done = subprocess.run(
            ["objdump", "-p", str(path)], capture_output=True, text=True, check=True
        )
        yield path.name, done.stdout


def _numbers(versions: Iterable[str], prefix: str) -> list[tuple[int, ...]]:
    return [
        tuple(int(part) for part in version.removeprefix(prefix).split("."))
        for version in versions
        if version.startswith(prefix)
    ]


def _highest(versions: Iterable[str], prefix: str) -> tuple[int, int]:
    best = max(_numbers(versions, prefix), default=(2, 0))
    return best[0], best[1]
