"""From the name in a Load to an FTW folder; the built-in model is converted on first use.

Knows folders only. Called by `engine.loader.open` and the profile job.
"""

from collections.abc import Callable
from pathlib import Path

from engine.checkpoint.convert import Recipe, convert
from engine.checkpoint.index import INDEX_NAME
from engine.checkpoint.renew import fresh_folder, is_current, put_in_place
from engine.checkpoint.source import SourceCheckpoint
from engine.models.registry import get_family
from engine.protocol.errors import FileAccess
from engine.protocol.places import DataRoot, resources_dir

BUILTIN = "builtin"
BUILTIN_FOLDER = "tiny-moe-fp8"


def locate_model(
    name: str,
    home: DataRoot,
    progress: Callable[[str, int, int], None],
    cancelled: Callable[[], bool],
) -> Path:
    """Return the FTW folder that `name` means.

    "builtin" (or its source folder) is the model that ships with the program, converted into the
    data root if it is not there yet, or if another version shipped since (stages "convert" and
    "verify"); a bare name is a folder under
    the data root's models; everything else is a path.
    Raises: FileAccess if there is no such folder; what a conversion raises.
    """
    source = resources_dir() / "models" / BUILTIN_FOLDER
    if name in (BUILTIN, BUILTIN_FOLDER) or Path(name) == source:
        return _builtin(source, home, progress, cancelled)
    bare = home.models / name
    if Path(name).name == name and bare.is_dir():
        return bare
    folder = Path(name).expanduser()
    if not folder.is_dir():
        raise FileAccess(f"There is no model folder {name}.", "Choose a model on the Models page.")
    return folder.absolute()


def _builtin(
    source: Path,
    home: DataRoot,
    progress: Callable[[str, int, int], None],
    cancelled: Callable[[], bool],
) -> Path:
    target = home.models / BUILTIN_FOLDER
    is_there = (target / INDEX_NAME).is_file()
    if is_there and (not source.is_dir() or is_current(target, source)):
        return target
    checkpoint = SourceCheckpoint(source)
    family = get_family(checkpoint.model_type)
    spec = family.read_config(checkpoint.config)
    recipe = Recipe.of(spec, family.weight_map(spec))
    fresh = fresh_folder(target) if is_there else target
    convert(checkpoint, fresh, recipe, progress, cancelled)
    if is_there:
        put_in_place(fresh, target)
    return target
