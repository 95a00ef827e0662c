"""The engine program on a disk that is full for as long as the file named by FULL_DISK exists.

Only the bytes of downloads are refused, as a full disk refuses them.
"""

import errno
import os
import sys
from pathlib import Path
from typing import BinaryIO

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from engine.__main__ import main
from engine.jobs import hub_file
from engine.system import hard_exit

_write = hub_file._write


def write(out: BinaryIO, data: bytes) -> None:
    """Write, if there is room."""
    if Path(os.environ["FULL_DISK"]).exists():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    _write(out, data)


if __name__ == "__main__":
    hub_file._write = write
    hard_exit(main())
