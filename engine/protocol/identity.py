"""Which bytes a small checkpoint consists of: told by both sides, so that they can compare.

A converted model remembers it; the app holds it against the model that came with it. Large
checkpoints have none: reading them takes minutes. No torch.
"""

from pathlib import Path

import xxhash

MOST_BYTES = 1 << 30
_CHUNK = 1 << 20


def content_id(folder: Path) -> str:
    """Return a hash over names and bytes of config and weights; "" for a large checkpoint.

    Raises: OSError if a file cannot be read.
    """
    files = sorted((*folder.glob("*.safetensors"), folder / "config.json"))
    if sum(file.stat().st_size for file in files) > MOST_BYTES:
        return ""
    digest = xxhash.xxh3_128()
    for file in files:
        digest.update(f"\n{file.name} {file.stat().st_size}\n".encode())
        with file.open("rb") as handle:
            while chunk := handle.read(_CHUNK):
                digest.update(chunk)
    found: str = digest.hexdigest()
    return found
