"""The signed file that says which release is the newest; the app asks for it, see updates.py.

`python -m installers.common.update_manifest new-key key.hex` makes a key and prints the public half
for `FT_UPDATE_KEY`; `... sign key.hex 0.2.0 https://page > release.json` signs.
"""

import argparse
import json
import os
import sys
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def signed(version: str, page: str, key: Ed25519PrivateKey) -> bytes:
    """Return the file for a release."""
    text = json.dumps({"version": version, "page": page}, sort_keys=True)
    return json.dumps({"signed": text, "signature": key.sign(text.encode()).hex()}).encode() + b"\n"


def new_key(path: Path) -> str:
    """Write a private key that only its owner can read. Returns the public one."""
    key = Ed25519PrivateKey.generate()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(key.private_bytes_raw().hex() + "\n")
    return key.public_key().public_bytes_raw().hex()


def main() -> int:
    """Make a key, or sign."""
    parser = argparse.ArgumentParser(description="Sign what the app asks for.")
    acts = parser.add_subparsers(dest="act", required=True)
    acts.add_parser("new-key").add_argument("key", type=Path)
    sign = acts.add_parser("sign")
    sign.add_argument("key", type=Path)
    sign.add_argument("version")
    sign.add_argument("page")
    options = parser.parse_args()
    if options.act == "new-key":
        print(new_key(options.key))
        return 0
    raw = bytes.fromhex(options.key.read_text(encoding="ascii").strip())
    key = Ed25519PrivateKey.from_private_bytes(raw)
    sys.stdout.buffer.write(signed(options.version, options.page, key))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
