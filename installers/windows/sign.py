"""Sign one Windows program if a key is given: `python installers/windows/sign.py FILE`.

Called by the setup compiler for the uninstaller and the setup, by pack.py for our two programs.
Without FT_SIGN_PFX in the environment nothing happens, so that everybody can build.
"""

import os
import subprocess
import sys
from pathlib import Path

KITS = Path("C:/Program Files (x86)/Windows Kits/10/bin")
TIME_SERVER = "http://timestamp.digicert.com"


def signtool() -> str:
    """Return the newest signing tool of the Windows SDK, "" if there is none."""
    found = sorted(KITS.glob("10.*/x64/signtool.exe"))
    return str(found[-1]) if found else ""


def sign(file: Path) -> int:
    """Sign a file. Returns the exit code; 0 if there is no key."""
    key = os.environ.get("FT_SIGN_PFX")
    if not key:
        return 0
    words = ["sign", "/f", key, "/fd", "sha256", "/tr", TIME_SERVER, "/td", "sha256", str(file)]
    password = os.environ.get("FT_SIGN_PASSWORD")
    if password:
        words[1:1] = ["/p", password]
    return subprocess.run([signtool(), *words], check=False).returncode


if __name__ == "__main__":
    sys.exit(sign(Path(sys.argv[1])))
