"""Text to tokens: mix teacher and hand-made documents into conversations, train the tokenizer.

Held-out families go to `held-out.jsonl` and nowhere else. Training text becomes one flat row of
token ids per worker, with the places where documents start and a mask of the assistant's tokens.
"""

import json
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from recipe import dialogues, synth
from recipe.chat import (
    END_OF_TEXT,
    IM_END_ID,
    SPECIAL_TOKENS,
    Turn,
    exchange,
    open_turn,
    render,
)
from recipe.sources import table
from recipe.synth import Doc

VOCAB = 8192
_PIECES = r"\n+|\p{N}| ?\p{L}+(?:'\p{L}+)?| ?[^\s\p{L}\p{N}]+| +(?!\S)|\s"
_MAX_CHARS = 6000  # a conversation stays far below the context


class Sources(NamedTuple):
    """Where the texts come from; `scale` multiplies the hand-made counts."""

    teacher: Path
    wordnet: Path
    scale: float
    seed: int


def teacher_docs(path: Path) -> list[Doc]:
    """Return the teacher's documents; families that end in "~" are held out."""
    rows = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return [Doc(row[0], exchange(row[1], row[2]), row[0].endswith("~")) for row in rows]


def hold_out(sources: Sources, per_family: int, path: Path) -> dict[str, int]:
    """Write the held-out documents; return how many of each family."""
    docs = [doc for doc in teacher_docs(sources.teacher) if doc.held_out]
    docs += synth.held_out(per_family, sources.seed)
    rng = Random(sources.seed)
    docs += [d for d in synth.meanings(sources.wordnet, rng) if d.held_out]
    counts: dict[str, int] = {}
    with path.open("w", encoding="utf-8") as file:
        for doc in docs:
            counts[doc.family] = counts.get(doc.family, 0) + 1
            if counts[doc.family] <= per_family:
                file.write(json.dumps([doc.family, doc.turns]) + "\n")
    return {family: min(count, per_family) for family, count in counts.items()}


def training_docs(sources: Sources, part: int, parts: int) -> list[Doc]:
    """Return one part of the training documents, mixed."""
    rng = Random(f"{sources.seed}/meanings")
    docs = [d for d in teacher_docs(sources.teacher) if not d.held_out][part::parts]
    docs += [d for d in synth.meanings(sources.wordnet, rng) if not d.held_out][part::parts]
    docs += synth.training(sources.scale / parts, sources.seed * 1000 + part)
    Random(f"{sources.seed}/{part}/mix").shuffle(docs)
    return docs


def conversations(docs: Iterable[Doc], rng: Random) -> Iterable[list[Turn]]:
    """Yield conversations: most have one document, some go on with another topic or with thanks."""
    rest = iter(docs)
    for doc in rest:
        turns = list(doc.turns)
        if rng.random() < 0.2:
            for other in islice(rest, rng.randint(1, 3)):
                turns += other.turns
        if rng.random() < 0.12:
            turns += dialogues.rest_after(rng)
        if rng.random() < 0.05:
            turns.insert(0, Turn("system", rng.choice(table("systems"))))
        if sum(len(turn.text) for turn in turns) <= _MAX_CHARS:
            yield turns


def train_tokenizer(texts: Iterable[str], vocab: int = VOCAB) -> Tokenizer:
    """Return a byte-level BPE tokenizer; every digit is a token of its own."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), "isolated", False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=[AddedToken(t, special=True, normalized=False) for t in SPECIAL_TOKENS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def assistant_mask(tokens: NDArray[np.uint16], opening: list[int]) -> NDArray[np.bool_]:
    """Mark the assistant's tokens, the end mark included; `opening` is what precedes them."""
    width = len(opening)
    found = np.ones(max(0, len(tokens) - width + 1), bool)
    for offset, token in enumerate(opening):
        found &= tokens[offset : offset + len(found)] == token
    starts = np.flatnonzero(found) + width
    ends = np.flatnonzero(tokens == IM_END_ID)
    stops = ends[np.minimum(np.searchsorted(ends, starts), len(ends) - 1)] + 1
    steps = np.zeros(len(tokens) + 1, np.int32)
    np.add.at(steps, starts, 1)
    np.add.at(steps, np.maximum(stops, starts), -1)
    return steps[:-1].cumsum() > 0


def build(
    sources: Sources, folder: Path, workers: int, log: Callable[[str], None], per_family: int = 100
) -> int:
    """Write held-out set, tokenizer and token files to `folder`; return the number of tokens."""
    log(f"held out: {hold_out(sources, per_family, folder / 'held-out.jsonl')}")
    sample = training_docs(sources._replace(scale=sources.scale / 16), 0, 1)[:120_000]
    rng = Random(sources.seed)
    tokenizer = train_tokenizer(render(turns) for turns in conversations(sample, rng))
    tokenizer.save(str(folder / "tokenizer.json"))
    work = partial(_encode, sources, folder, workers)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        found = list(pool.map(work, range(workers)))
    tokens, docs, chars = (sum(column) for column in zip(*found, strict=True))
    log(
        f"{docs} conversations, {chars / 1e6:.1f} MB, {tokens / 1e6:.1f} M tokens, "
        f"{chars / tokens:.2f} characters a token"
    )
    return tokens


def _encode(sources: Sources, folder: Path, parts: int, part: int) -> tuple[int, int, int]:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a worker process of its own
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    rng = Random(f"{sources.seed}/{part}/conversations")
    texts = [
        render(t) + END_OF_TEXT for t in conversations(training_docs(sources, part, parts), rng)
    ]
    rows: list[NDArray[np.uint16]] = []
    for start in range(0, len(texts), 2000):
        some = tokenizer.encode_batch(texts[start : start + 2000])
        rows += [np.array(one.ids, np.uint16) for one in some]
    flat = np.concatenate(rows)
    opening = tokenizer.encode(open_turn("assistant")).ids
    np.save(folder / f"tokens-{part:02d}.npy", flat)
    np.save(folder / f"starts-{part:02d}.npy", np.cumsum([0, *map(len, rows[:-1])]))
    np.save(folder / f"mask-{part:02d}.npy", assistant_mask(flat, opening))
    return len(flat), len(texts), sum(map(len, texts))


class Corpus(NamedTuple):
    """All training tokens, where documents start, and which tokens are the assistant's."""

    tokens: NDArray[np.uint16]
    starts: NDArray[np.int64]
    mask: NDArray[np.bool_]


def load(folder: Path) -> Corpus:
    """Return the token files of all workers as one row."""
    tokens = [np.load(path) for path in sorted(folder.glob("tokens-*.npy"))]
    starts = [np.load(path) for path in sorted(folder.glob("starts-*.npy"))]
    offsets = np.cumsum([0, *map(len, tokens[:-1])])
    return Corpus(
        np.concatenate(tokens),
        np.concatenate([part + offset for part, offset in zip(starts, offsets, strict=True)]),
        np.concatenate([np.load(path) for path in sorted(folder.glob("mask-*.npy"))]),
    )
