"""How the setup program is compiled: the command line for `makensis`, and checks before it.

Works on Linux too, over any staged tree; the result is then the script's test, not a product.
"""

import os
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "installers" / "windows" / "setup.nsi"
SIGNER = SCRIPT.with_name("sign.py")
INSTALLED = Path("C:/Program Files (x86)/NSIS/makensis.exe")
LIMIT = 2_000_000_000  # the compiler maps its output: more than 2 GB fails
# A folder below AppData takes 60 characters and a long name; beyond 260 old programs give up.
LONGEST = 170
# Part of the compiler's run-time library; a clean Windows has none of them (case P-05).
RUNTIME = ("vcruntime140.dll", "vcruntime140_1.dll", "msvcp140.dll")


class NotPackable(Exception):
    """The build cannot become a setup program; the text says why."""


def check(build: Path, for_windows: bool) -> int:
    """Return the build's size in bytes. Raises: NotPackable."""
    files = [path for path in build.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    if size > LIMIT:
        raise NotPackable(f"{size / 1e9:.1f} GB; a setup program can hold {LIMIT / 1e9:.0f} GB.")
    longest = max((path.relative_to(build).as_posix() for path in files), key=len, default="")
    if len(longest) > LONGEST:
        raise NotPackable(f"{longest} has {len(longest)} characters, at most {LONGEST} are safe.")
    names = {path.name.lower() for path in files}
    missing = [name for name in RUNTIME if name not in names]
    if for_windows and missing:
        raise NotPackable(f"not bundled: {', '.join(missing)}")
    return size


def command(build: Path, target: Path, version: str, final: bool, machine: str = "") -> list[str]:
    """Return the compiler's command line. Raises: NotPackable.

    Args:
        build: the frozen build, or a stand-in.
        target: the setup program.
        version: of the product.
        final: smallest result; takes minutes.
        machine: kind of starter, "" = the compiler's usual one.
    """
    size = check(build, (build / "freetoken.exe").exists())
    numbers = (re.findall(r"\d+", version) + ["0"] * 4)[:4]
    values = {
        "BUILD": str(build),
        "OUT": str(target),
        "ROOT": str(ROOT),
        "VERSION": version,
        "VERSION4": ".".join(numbers),
        "SIZE_KB": str(size // 1024),
        **({"FINAL": "1"} if final else {}),
        **({"TARGET": machine} if machine else {}),
        **({"SIGN": f'"{sys.executable}" "{SIGNER}"'} if os.environ.get("FT_SIGN_PFX") else {}),
    }
    defines = [f"-D{name}={value}" for name, value in values.items()]
    return [compiler(), "-V2", "-WX", "-INPUTCHARSET", "UTF8", *defines, str(SCRIPT)]


def compiler() -> str:
    """Return the path of makensis. Raises: NotPackable saying where to get it."""
    if INSTALLED.exists():
        return str(INSTALLED)
    found = shutil.which("makensis")
    if found is None:
        raise NotPackable("makensis is missing. Install NSIS 3: apt-get install nsis, or nsis.")
    return found
