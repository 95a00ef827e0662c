"""Licence texts of everything that a build contains, found by what was collected.

A build without the texts of one of its parts is not made: `write` raises. Texts of what is no
Python package (Qt, Python itself, system libraries) lie in `resources/licences`.
"""

import json
from collections.abc import Iterable
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

from app.services.licences import licence_name, text_files

OURS = ("app", "engine", "kernels")
# Wheels without a text of their own: where it lies instead.
ELSEWHERE = {
    "PySide6_Essentials": "resources/licences/Qt.md",
    "shiboken6": "resources/licences/Qt.md",
    "tokenizers": "LICENSE",
    "nvidia-ml-py": "resources/licences/nvidia-ml-py.txt",
}


class MissingNotice(Exception):
    """A bundled package has no licence text."""


def distributions_of(entries: Iterable[tuple[str, str, str]]) -> set[str]:
    """Return the names of the packages that collected modules and libraries come from."""
    known = packages_distributions()
    found: set[str] = set()
    for name, source, _ in entries:
        parts = Path(source).parts
        if "site-packages" not in parts:
            continue
        top = parts[len(parts) - parts[::-1].index("site-packages")]
        top = top.removesuffix(".libs").partition(".")[0]
        owners = known.get(top, [])
        if top not in OURS and not owners and "." not in name:
            raise MissingNotice(f"{source} belongs to no installed package.")
        found.update(owners)
    return found


def write(entries: Iterable[tuple[str, str, str]], folder: Path) -> tuple[list[Path], Path]:
    """Write one file of notices per package of a build; deep folders would break on Windows.

    Returns: the files, and a list of the packages for the window, see `app.services.licences`.
    Raises: MissingNotice naming the package that has none.
    """
    folder.mkdir(parents=True, exist_ok=True)
    papers: list[Path] = []
    parts: list[dict[str, object]] = []
    for name in sorted(distributions_of(entries)):
        package = distribution(name)
        texts = text_files(package)
        if not texts and name not in ELSEWHERE:
            raise MissingNotice(
                f"{name} ships without a licence text: put one into resources/licences and name it "
                "in installers/common/notices.py."
            )
        place = ELSEWHERE.get(name, "").removeprefix("resources/licences/")
        where = f"packages/{name}.txt" if texts else place
        parts.append({"name": name, "version": package.version, "texts": [where],
                      "licence": licence_name(package)})  # fmt: skip
        if not texts:
            continue
        base = Path(str(package.locate_file("")))
        path = folder / f"{name}.txt"
        path.write_text(
            "\n\n".join(
                f"===== {name} {package.version}: {text.relative_to(base).as_posix()}\n\n"
                + text.read_text(encoding="utf-8", errors="replace")
                for text in texts
            ),
            encoding="utf-8",
        )
        papers.append(path)
    index = folder / "packages.json"
    index.write_text(json.dumps(parts, indent=1) + "\n", encoding="utf-8")
    return papers, index
