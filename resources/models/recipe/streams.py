"""The sampler's stored streams, read back: which tokens belong to which reply. Needs no torch."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

FORCED = 65_535  # stands for a token of the prompt in the stored stream
_END_ID = 2  # the teacher's <|im_end|>


class Drawn(NamedTuple):
    """One reply as it was drawn: token ids without the end mark; finished: it ended by itself."""

    prompt: int
    tokens: list[int]
    finished: bool
    score: float


def cut(folder: Path, columns: slice) -> list[Drawn]:
    """Return the complete replies of some rows of all rings in `folder`, in order.

    The score is the mean log-probability of the reply's tokens. A row's last reply is left out:
    the end of the run cut it.
    """
    parts = [
        np.concatenate([np.load(p, mmap_mode="r")[:, columns] for p in sorted(folder.glob(glob))])
        for glob in ("tokens-*.npy", "prompts-*.npy", "scores-*.npy")
    ]
    found = []
    for tokens, prompts, scores in zip(*(part.T for part in parts), strict=True):
        drawn = tokens != FORCED
        tokens, prompts, scores = tokens[drawn], prompts[drawn], scores[drawn].astype(np.float32)
        borders = np.flatnonzero(np.diff(prompts)) + 1
        starts = np.concatenate([[0], borders])
        for begin, end in zip(starts, borders, strict=False):
            finished = bool(tokens[end - 1] == _END_ID)
            found.append(
                Drawn(
                    int(prompts[begin]),
                    tokens[begin : end - finished].tolist(),
                    finished,
                    float(scores[begin:end].mean()),
                )
            )
    return found
