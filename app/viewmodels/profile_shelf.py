"""The measurements of this machine on disk: the engine's job writes them, earlier ones are kept.

One file per device and format is current; a run that is replaced stays as a copy in `earlier/`.
Reads tolerantly; a file that cannot be read is no measurement.
"""

import contextlib
from pathlib import Path

import msgspec

from app.predict.profiles import Conditions, Profile, read_conditions, read_profile
from app.services.files import replace_file

_KEPT = 30
_MAX_BYTES = 4 << 20


class ProfileShelf:
    """Profiles of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.profiles: tuple[Profile, ...] = ()
        self.refresh()

    def refresh(self) -> None:
        """Read the current measurements again, newest first."""
        self.profiles = _read_all(self.folder)

    def earlier(self) -> tuple[Profile, ...]:
        """All runs that were kept, newest first; the current ones are among them."""
        kept = {(p.device, p.format, p.measured_at_s): p for p in _read_all(self._earlier)}
        kept |= {(p.device, p.format, p.measured_at_s): p for p in self.profiles}
        return tuple(sorted(kept.values(), key=lambda p: -p.measured_at_s))

    def conditions(self, profile: Profile) -> Conditions | None:
        """Return what was noted during a run; None = nothing."""
        try:
            return read_conditions(self._beside(profile).read_bytes())
        except OSError:
            return None

    def keep(self, path: Path, conditions: Conditions | None = None) -> None:
        """Keep a copy of a finished run, and what was so; a full disk costs the history only."""
        with contextlib.suppress(OSError):
            data = path.read_bytes()
            profile = read_profile(data)
            if profile is None:
                return
            self._earlier.mkdir(parents=True, exist_ok=True)
            name = f"{path.stem}-{int(profile.measured_at_s)}.json"
            (self._earlier / name).write_bytes(data)
            if conditions is not None:
                replace_file(self._beside(profile), msgspec.json.encode(conditions))
            for old in sorted(self._earlier.glob("*.json"), key=_age)[:-_KEPT]:
                old.unlink()
            for old in sorted(self._around.glob("*.json"), key=_age)[:-_KEPT]:
                old.unlink()

    @property
    def _earlier(self) -> Path:
        return self.folder / "earlier"

    @property
    def _around(self) -> Path:
        return self._earlier / "conditions"

    def _beside(self, profile: Profile) -> Path:
        return self._around / f"{profile.format}-{int(profile.measured_at_s)}.json"


def _age(path: Path) -> float:
    return path.stat().st_mtime


def _read_all(folder: Path) -> tuple[Profile, ...]:
    found = []
    with contextlib.suppress(OSError):
        for path in sorted(folder.glob("*.json")):
            with contextlib.suppress(OSError):
                profile = read_profile(path.read_bytes()) if _is_small(path) else None
                if profile is not None:
                    found.append(profile)
    return tuple(sorted(found, key=lambda p: -p.measured_at_s))


def _is_small(path: Path) -> bool:
    return path.stat().st_size <= _MAX_BYTES
