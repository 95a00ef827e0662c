"""The signed file that says which release is the newest; the app asks for it, see updates.py.

`python -m installers.common.update_manifest new-key key.hex` makes a key and prints the public half
for `FT_UPDATE_KEY`; `... sign key.hex 0.2.0 https://page > release.json` signs. With `--public` it
first looks whether the apps that were built with that half will believe the file.
"""

import argparse
import json
import os
import re
import sys
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


class NotSignable(Exception):
    """The app would refuse the file; the text says why."""


def check(version: str, page: str, key: Ed25519PrivateKey, public: str = "") -> None:
    """Look at what the app looks at, before anybody gets the file. Raises: NotSignable."""
    if not re.fullmatch(r"\d+(\.\d+){0,3}", version, re.ASCII):
        raise NotSignable(f"{version} is no version of a release: numbers and dots only.")
    if not page.startswith("https://"):
        raise NotSignable(f"{page} is no https address.")
    if public and bytes.fromhex(public.strip()) != key.public_key().public_bytes_raw():
        raise NotSignable("The key is not the one whose public half the apps were built with.")


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
    sign.add_argument("--public", default="", help="public half that the apps were built with")
    options = parser.parse_args()
    if options.act == "new-key":
        print(new_key(options.key))
        return 0
    raw = bytes.fromhex(options.key.read_text(encoding="ascii").strip())
    key = Ed25519PrivateKey.from_private_bytes(raw)
    try:
        check(options.version, options.page, key, options.public)
    except NotSignable as problem:
        print(problem, file=sys.stderr)
        return 1
    sys.stdout.buffer.write(signed(options.version, options.page, key))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
