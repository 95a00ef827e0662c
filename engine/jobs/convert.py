"""Job: convert a Hugging Face folder to FTW. Joins family, quant format and converter.

Spec: {"source": path, "target": path, "id": str}; "room_at": a folder that must be there, unless it
is "own_folder", which is the app's and is made; and, where the target is an older conversion that
shall be replaced, "replace": true. Result: path, name, model_type, quant, num_bytes, num_records,
num_tensors, num_aux. Writes nothing but the target; its output is checked before it gets its name,
and an older one goes after that.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.checkpoint.convert import Recipe, convert
from engine.checkpoint.renew import fresh_folder, put_in_place
from engine.checkpoint.source import SourceCheckpoint
from engine.models.registry import get_family
from engine.protocol.errors import FileAccess, InvalidRequest
from engine.protocol.messages import Event, Progress


def run(
    spec: dict[str, Any], emit: Callable[[Event], None], cancelled: Callable[[], bool]
) -> dict[str, Any]:
    """Run the job; stages of its progress: "check", "convert", "verify".

    Raises: InvalidRequest for a spec without paths; FileAccess without `room_at`; everything that
        `convert` and the reading of source and config raise. Nothing half-written is left.
    """
    job_id = str(spec.get("id", ""))
    source_folder, target = read_path(spec, "source"), read_path(spec, "target")
    emit(Progress(id=job_id, stage="check", detail=source_folder.name))
    check_room(spec)
    source = SourceCheckpoint(source_folder)
    family = get_family(source.model_type)
    model = family.read_config(source.config)

    def tell(stage: str, done: int, total: int) -> None:
        emit(Progress(id=job_id, stage=stage, done_bytes=done, total_bytes=total))

    recipe = Recipe.of(model, family.weight_map(model))
    replace = spec.get("replace") is True
    made = convert(source, fresh_folder(target) if replace else target, recipe, tell, cancelled)
    if replace:
        put_in_place(made.folder, target)
    return {
        "path": str(target),
        "name": source.name,
        "model_type": model.model_type,
        "quant": model.quant,
        "num_bytes": made.num_bytes,
        "num_records": made.num_records,
        "num_tensors": made.num_tensors,
        "num_aux": len(made.aux),
    }


def check_room(spec: dict[str, Any]) -> None:
    """Raise FileAccess if the folder that shall hold the target is away.

    Nothing is written elsewhere then, such as into the folder that a disk is mounted on (D-17).
    """
    folder = spec.get("room_at")
    if not isinstance(folder, str) or not folder:
        return
    make_own(spec, Path(folder))
    if not Path(folder).is_dir():
        raise FileAccess(f"The models folder {folder} is not there.")


def make_own(spec: dict[str, Any], folder: Path) -> None:
    """Make the folder if it is the app's own: that one is never a disk that is away.

    Raises: FileAccess.
    """
    own = spec.get("own_folder")
    if isinstance(own, str) and own and Path(own) == folder:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise FileAccess(f"Cannot make {folder}: {problem.strerror}.") from problem


def read_path(spec: dict[str, Any], key: str) -> Path:
    """Return a path of a job's spec; raises InvalidRequest naming the key if there is none."""
    value = spec.get(key)
    if not isinstance(value, str) or not value:
        raise InvalidRequest(f"The job's '{key}' must be a path.")
    return Path(value)
