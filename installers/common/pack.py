"""Make this platform's packages of a frozen build.

`python -m installers.common.pack dist/freetoken dist`.

Linux: `.deb`, `.rpm` and a tarball. Windows: the setup program; elsewhere `--setup` compiles the
same script over a staged tree. Prints sizes and writes SHA256SUMS. Tools come from our own
environment, never from whatever lies first on PATH (case P-08), but for the setup compiler.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from installers.common import freeze
from installers.linux import needs
from installers.windows import setup, sign

ROOT = Path(__file__).resolve().parents[2]
LINUX = ROOT / "installers" / "linux"
HOME = "/opt/freetoken"
ICONS = ROOT / "resources" / "icons" / "app"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
PACKAGES = (".deb", ".rpm", ".tar.gz", ".tar.xz", "-setup.exe", ".ftruntime")
SHELL_LIMIT = 66_000_000  # what is fetched before the window is first seen
SUMMARY = "chat with language models larger than your VRAM"
ABOUT = f"""{SUMMARY}
Runs mixture-of-experts language models larger than the memory of the graphics card: every expert
stays in RAM, the card holds an elastic cache of those in use. Chats and models live in the user's
own folder and stay when the package is removed."""


def build_time() -> int:
    """Return the time that files of a package carry: that of the commit, for repeatable builds."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    done = subprocess.run(
        ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"],
        capture_output=True,
        text=True,
        check=False,
    )
    return int(done.stdout) if done.returncode == 0 and done.stdout.strip() else int(time.time())


def facts_of(build: Path) -> dict[str, Any]:
    """Return the stamp of a frozen build."""
    path = next(build.glob("**/resources/build.json"))
    facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return facts


def package_name(bundle: str) -> str:
    """Return the name of the package for a kind of build."""
    return "freetoken-full" if bundle == "full" else "freetoken"


def packager_version(version: str) -> str:
    """Return a version as .deb and .rpm order it: 1.2.0~rc3 is older than 1.2.0."""
    return re.sub(r"\.?(a|b|rc|dev)(?=\d)", r"~\1", version)


def recipe(
    build: Path, work: Path, wanted: needs.Needs, compression: str = "zstd"
) -> dict[str, Any]:
    """Return the packager's configuration for .deb and .rpm; writes the files it names."""
    facts = facts_of(build)
    name = package_name(facts["bundle"])
    other = "freetoken" if name == "freetoken-full" else "freetoken-full"
    when = datetime.fromtimestamp(build_time(), UTC)
    metainfo = work / "freetoken-desktop.metainfo.xml"
    text = (LINUX / metainfo.name).read_text(encoding="utf-8")
    version = packager_version(facts["version"])
    text = text.replace("@VERSION@", version).replace("@DATE@", f"{when:%Y-%m-%d}")
    metainfo.write_text(text, encoding="utf-8")
    share = "/usr/share"
    files = [
        (LINUX / "freetoken-desktop.desktop", f"{share}/applications/freetoken-desktop.desktop"),
        (LINUX / "freetoken-desktop.xml", f"{share}/mime/packages/freetoken-desktop.xml"),
        (metainfo, f"{share}/metainfo/{metainfo.name}"),
        (LINUX / "copyright", f"{share}/doc/{name}/copyright"),
        (ICONS / "freetoken.svg", f"{share}/icons/hicolor/scalable/apps/freetoken-desktop.svg"),
    ]
    for size in (16, 24, 32, 48, 64, 128, 256, 512):
        place = f"{share}/icons/hicolor/{size}x{size}/apps/freetoken-desktop.png"
        files.append((ICONS / f"freetoken-{size}.png", place))
    return {
        "name": name,
        "arch": ARCHITECTURES[os.uname().machine],
        "platform": "linux",
        "version": version,
        "version_schema": "none",  # else the packager rewrites what looks like its own kind
        "release": "1",
        "section": "science",
        "priority": "optional",
        "maintainer": "The FreeToken Desktop authors <none@invalid>",
        "description": ABOUT,
        "license": "Apache-2.0",
        "mtime": when.isoformat().replace("+00:00", "Z"),
        "umask": 0o022,
        "conflicts": [other],
        "replaces": [other],
        "contents": [
            {"src": str(build), "dst": HOME, "type": "tree"},
            {"src": f"{HOME}/freetoken", "dst": "/usr/bin/freetoken", "type": "symlink"},
            *({"src": str(src), "dst": dst} for src, dst in files),
        ],
        "overrides": {
            "deb": {"depends": wanted.deb(), "recommends": list(needs.RECOMMENDED)},
            "rpm": {"depends": wanted.rpm()},
        },
        "deb": {"compression": compression},
        "rpm": {
            "compression": compression,
            "summary": SUMMARY,
            "group": "Applications/Engineering",
        },
    }


def pack_linux(build: Path, target: Path, final: bool) -> list[Path]:
    """Make .deb, .rpm and the tarball; `final` is smallest, and slow. Returns the files."""
    work = target / "recipe"
    work.mkdir(parents=True, exist_ok=True)
    wanted = needs.needs_of(build)
    config = work / "nfpm.json"  # JSON is YAML too
    config.write_text(
        json.dumps(recipe(build, work, wanted, "xz" if final else "zstd"), indent=1),
        encoding="utf-8",
    )
    print("needs: " + ", ".join(wanted.deb()))
    facts = facts_of(build)
    stem = f"{package_name(facts['bundle'])}-{facts['version']}-linux-{os.uname().machine}"
    for old in target.glob(f"{stem}.*"):  # another form of it would stay in the checksums
        old.unlink()
    packager = str(Path(sys.executable).with_name("nfpm"))
    made = []
    for kind in ("deb", "rpm"):
        words = [packager, "package", "--config", str(config), "--packager", kind]
        path = target / f"{stem}.{kind}"
        _timed(path, lambda words=words, path=path: _run([*words, "--target", str(path)]))
        made.append(path)
    path = target / f"{stem}.tar.{'xz' if final else 'gz'}"
    _timed(path, lambda: _tarball(build, path))
    return [*made, path]


def pack_windows(build: Path, target: Path, final: bool) -> list[Path]:
    """Compile the setup program. Returns the files."""
    facts = facts_of(build)
    for program in (freeze.WINDOW, freeze.ENGINE):
        if code := sign.sign(build / f"{program}.exe"):
            raise SystemExit(f"Signing {program}.exe failed with {code}.")
    kind = "-full" if facts["bundle"] == "full" else ""
    path = target / f"FreeToken-Desktop{kind}-{facts['version']}-setup.exe"
    _timed(path, lambda: _run(setup.command(build, path, facts["version"], final)))
    return [path]


def _tarball(build: Path, path: Path) -> None:
    stamp = build_time()

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = 0
        info.uname = info.gname = "root"
        info.mtime = stamp
        return info

    small = path.suffix == ".xz"
    with (
        tarfile.open(path, "w:xz", preset=6)
        if small
        else tarfile.open(path, "w:gz", compresslevel=6) as archive
    ):
        archive.add(build, "freetoken", filter=plain)
        for extra in ("freetoken-desktop.desktop", "README"):
            archive.add(LINUX / extra, f"freetoken/{extra}", filter=plain)


def _run(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(
            f"{Path(words[0]).name} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )


def _timed(path: Path, act: Callable[[], object]) -> None:
    begun = time.monotonic()
    act()
    size = path.stat().st_size / 1e6
    print(f"{path.name}: {size:.1f} MB in {time.monotonic() - begun:.0f} s", flush=True)


def write_sums(target: Path) -> None:
    """Write SHA256SUMS of all packages in a folder, as `sha256sum -c` reads it."""
    lines = []
    for path in sorted(p for p in target.iterdir() if p.name.endswith(PACKAGES)):
        with path.open("rb") as file:
            lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path.name}\n")
    # On Windows too: sha256sum of the machine that publishes takes "\r" for a part of the name.
    (target / "SHA256SUMS").write_text("".join(lines), encoding="utf-8", newline="\n")


def main() -> int:
    """Make what this platform can make."""
    parser = argparse.ArgumentParser(description="Make packages of a frozen build.")
    parser.add_argument("build", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--setup", action="store_true", help="compile the Windows setup instead")
    parser.add_argument(
        "--final", action="store_true", help="smallest packages, in minutes; a shell's always are"
    )
    options = parser.parse_args()
    build, target = options.build.resolve(), options.target.resolve()
    target.mkdir(parents=True, exist_ok=True)
    _print_sizes(build)
    is_shell = facts_of(build)["bundle"] == "shell"
    pack = pack_windows if options.setup or sys.platform == "win32" else pack_linux
    made = pack(build, target, options.final or is_shell)
    if is_shell:
        warn_of_size(made)
    write_sums(target)
    return 0


def warn_of_size(made: list[Path]) -> None:
    """Say which packages of a shell are larger than a shell may be."""
    for path in made:
        if path.stat().st_size > SHELL_LIMIT:
            size = path.stat().st_size / 1e6
            print(f"{path.name} is too large: {size:.1f} of {SHELL_LIMIT / 1e6:.0f} MB")


def _print_sizes(build: Path) -> None:
    parts = {"all": 0, "Qt": 0, "torch": 0, "models": 0}
    for path in build.rglob("*"):
        if not path.is_file() or path.is_symlink():
            continue
        size, place = path.stat().st_size, path.relative_to(build).as_posix()
        parts["all"] += size
        parts["Qt"] += size if "/PySide6/" in place or "/shiboken6/" in place else 0
        parts["torch"] += size if "/torch/" in place else 0
        parts["models"] += size if "/resources/models/" in place else 0
    print("on disk: " + ", ".join(f"{name} {size / 1e6:.0f} MB" for name, size in parts.items()))


if __name__ == "__main__":
    raise SystemExit(main())
