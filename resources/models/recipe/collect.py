"""Turn the sampler's streams into documents: cut, decode, filter, drop the least likely ones."""

import itertools
import json
import lzma
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from recipe import filters, prompts
from recipe.streams import cut

_PACK_FILES, _PACK_BYTES = 5, 12_000_000
DROP_SHARE = 0.35  # of each family, by the teacher's own mean log-probability


def collect(
    rings: Path,
    prompt_file: Path,
    tokenizer_file: Path,
    target: Path,
    workers: int,
    log: Callable[[str], None],
) -> int:
    """Write the kept replies as lines [family, prompt, reply, score]; return their number."""
    num_rows = np.load(next(iter(rings.glob("tokens-*.npy"))), mmap_mode="r").shape[1]
    borders = np.linspace(0, num_rows, workers + 1).astype(int).tolist()
    spans = [slice(a, b) for a, b in itertools.pairwise(borders) if a < b]
    work = partial(_part, rings, prompt_file, tokenizer_file)
    rows: list[tuple[str, str, str, float]] = []
    reasons: Counter[str] = Counter()
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for part, counted in pool.map(work, spans):
            rows += part
            reasons += counted
    scores: dict[str, list[float]] = {}
    for family, _, _, score in rows:
        scores.setdefault(family, []).append(score)
    least = filters.keep_best(scores, DROP_SHARE)
    seen: set[tuple[str, str]] = set()
    kept: Counter[str] = Counter()
    with target.open("w", encoding="utf-8") as file:
        for family, text, reply, score in rows:
            if score >= least[family] and (text, reply) not in seen:
                seen.add((text, reply))
                kept[family] += 1
                file.write(json.dumps([family, text, reply, round(score, 3)]) + "\n")
    total = sum(reasons.values()) + len(rows)
    shares = ", ".join(f"{why} {count / total:.1%}" for why, count in reasons.most_common())
    log(f"collected {total} replies; dropped: {shares}; kept {sum(kept.values())}: {dict(kept)}")
    return sum(kept.values())


def _part(
    rings: Path, prompt_file: Path, tokenizer_file: Path, columns: slice
) -> tuple[list[tuple[str, str, str, float]], Counter[str]]:
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    known = prompts.load(prompt_file)
    rows: list[tuple[str, str, str, float]] = []
    reasons: Counter[str] = Counter()
    drawn = cut(rings, columns)
    for start in range(0, len(drawn), 4096):
        some = drawn[start : start + 4096]
        replies = tokenizer.decode_batch([d.tokens for d in some])
        for one, raw in zip(some, replies, strict=True):
            prompt, reply = known[one.prompt], raw.strip()
            why = filters.reject(prompt, reply, one.finished)
            if why:
                reasons[why] += 1
            else:
                rows.append((prompt.family, prompt.text, reply, one.score))
    return rows, reasons


def pack(source: Path, folder: Path, log: Callable[[str], None]) -> None:
    """Write as many lines of `source` as fit into a few small xz files."""
    lines = source.read_bytes().splitlines(keepends=True)
    parts = [b"".join(lines[i::_PACK_FILES]) for i in range(_PACK_FILES)]
    with ProcessPoolExecutor(_PACK_FILES, mp_context=get_context("spawn")) as pool:
        for i, packed in enumerate(pool.map(_packed, parts)):
            (folder / f"teacher-{i}.jsonl.xz").write_bytes(packed)
            log(f"teacher-{i}.jsonl.xz {len(packed)} bytes of {len(parts[i])}")


def _packed(text: bytes) -> bytes:
    while len(packed := lzma.compress(text, preset=1)) > _PACK_BYTES:
        share = 0.97 * _PACK_BYTES / len(packed)
        text = text[: text.rfind(b"\n", 0, int(len(text) * share)) + 1]
    return packed
