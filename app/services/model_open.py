"""From what a desktop hands over, a `model.ftw` or its folder, to the folder of a model. No Qt."""

from pathlib import Path

INDEX = "model.ftw"


def model_folder(text: str) -> Path | None:
    """Return the model's folder for a path that was opened; None if there is no model."""
    path = Path(text).expanduser().absolute()
    try:
        if path.is_dir() and (path / INDEX).is_file():
            return path
        return path.parent if path.name == INDEX and path.is_file() else None
    except OSError:
        return None
