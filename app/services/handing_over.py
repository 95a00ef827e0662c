"""What a second start says to the first app, and where that hears it. See `SingleInstance`.

Reads those environment variables that belong to one start of the program, not to its settings.
"""

import contextlib
import ctypes
import hashlib
import json
import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

MAX_MESSAGE = 65_536  # bytes of a line; the longest path there is takes a third of it
MAX_ADDRESS = 100  # bytes; a socket's path may have 107 on Linux, 103 elsewhere
SOCKET_NAME = "app.socket"
RUN, SHARED = "/run/user", "/tmp/freetoken-desktop"  # folders of one person, by its number
_TOKEN = "XDG_ACTIVATION_TOKEN"
_OLDER_TOKEN = "DESKTOP_STARTUP_ID"
_ANY_PROCESS = 0xFFFFFFFF  # ASFW_ANY, winuser.h


@dataclass(frozen=True, slots=True)
class Request:
    """What a start of the program is asked to show.

    Attributes:
        page: name of a page, "" = the one that is shown.
        file: a model to load (an absolute path), "" = none.
        token: the desktop's permission to come to the front, "" = none.
    """

    page: str = ""
    file: str = ""
    token: str = ""


def encode(request: Request) -> bytes:
    """Return the line that carries a request. Names of files that are no text come through too."""
    return json.dumps(asdict(request)).encode("ascii") + b"\n"


def decode(line: bytes) -> Request | None:
    """Return the request of a line; None if it is none. Unknown fields are left out."""
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(raw, dict):
        return None
    values = [raw.get(name, "") for name in ("page", "file", "token")]
    if not all(isinstance(value, str) and "\0" not in value for value in values):
        return None
    return Request(*values)


def addresses(folder: Path, make: bool = False) -> Iterator[str]:
    """Yield where the first app of a data root may be heard, best place first.

    Nothing here depends on the environment: two starts may have different ones. The data root is
    best, but its path may be too long for a socket, or its file system may know none.

    Args:
        folder: the data root.
        make: make a place that is missing, for the app that listens.
    """
    real = os.path.realpath(folder)
    digest = hashlib.sha256(os.fsencode(os.path.normcase(real))).hexdigest()[:16]
    name = f"freetoken-desktop-{digest}"
    if sys.platform == "win32":
        yield name  # a pipe
        return
    own = os.path.join(real, SOCKET_NAME)
    if len(os.fsencode(own)) <= MAX_ADDRESS:
        yield own
    user = os.getuid()
    shared = f"{SHARED}-{user}"
    for place in (f"{RUN}/{user}", shared):
        if make and place == shared:
            with contextlib.suppress(OSError):
                os.mkdir(place, 0o700)
        if _is_private(place):
            yield os.path.join(place, name)


def activation_token() -> str:
    """Return what the desktop gave this start so that it may take the focus, "" = nothing.

    Ask before Qt is up: it takes the variables away.
    """
    return os.environ.get(_TOKEN, "") or os.environ.get(_OLDER_TOKEN, "")


@contextlib.contextmanager
def activation(token: str) -> Iterator[None]:
    """Lend the token of another start to this process, where Qt looks when it activates a window.

    Qt takes it on Wayland only; elsewhere nothing reads it, and it is gone again afterwards.
    """
    if not token or not token.isascii():  # no desktop makes another
        yield
        return
    os.environ[_TOKEN] = token
    try:
        yield
    finally:
        os.environ.pop(_TOKEN, None)


def let_others_forward() -> None:
    """Let any process take the focus: Windows allows it to the one that was started, us, alone."""
    if sys.platform == "win32":
        ctypes.windll.user32.AllowSetForegroundWindow(ctypes.c_uint32(_ANY_PROCESS))


def _is_private(place: str) -> bool:
    """Whether a folder is this person's own, and nobody else can put anything there."""
    if sys.platform == "win32":
        return True
    try:
        found = os.lstat(place)
    except OSError:
        return False
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    return is_ours and not stat.S_IMODE(found.st_mode) & 0o077
