"""What lies in a models folder and is ours to be moved: converted models, and downloads.

Only looks. Called by `engine.jobs.move`.
"""

from dataclasses import dataclass
from pathlib import Path

from engine.checkpoint.index import INDEX_NAME
from engine.checkpoint.origin import PIN_NAME

DOWNLOADS = ".downloads"


@dataclass(frozen=True, slots=True)
class Item:
    """One folder.

    Attributes:
        name: relative to the models folder, such as "tiny" or ".downloads/maker/tiny".
        files: (path inside the folder, path on the disk).
        num_bytes: of all files.
    """

    name: str
    files: tuple[tuple[str, Path], ...]
    num_bytes: int

    @property
    def is_download(self) -> bool:
        """Whether it is no converted model."""
        return self.name.startswith(DOWNLOADS)


def find_items(folder: Path, names: tuple[str, ...]) -> tuple[Item, ...]:
    """Return what is ours, or only the models of these names. Raises OSError."""
    models = [path.parent for path in sorted(folder.glob(f"*/{INDEX_NAME}"))]
    found = [path for path in models if not names or path.name in names]
    if not names:
        found += [path.parent for path in sorted((folder / DOWNLOADS).glob(f"*/*/{PIN_NAME}"))]
    return tuple(_item(folder, path) for path in found if _is_ours(path))


def strangers(folder: Path, items: tuple[Item, ...]) -> list[str]:
    """Return the names in a models folder that are not ours, at most some."""
    ours = {item.name.partition("/")[0] for item in items}
    return sorted(
        path.name
        for path in folder.iterdir()
        if path.name not in ours and not path.name.startswith(".")
    )[:20]


def _is_ours(folder: Path) -> bool:
    """A link leads to somebody else's place; a hidden or half-deleted folder is on its way out."""
    return not (folder.is_symlink() or folder.name.startswith(".") or folder.suffix == ".deleted")


def _item(root: Path, folder: Path) -> Item:
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    files = tuple((path.relative_to(folder).as_posix(), path) for path in paths)
    size = sum(path.stat().st_size for path in paths)
    return Item(folder.relative_to(root).as_posix(), files, size)
