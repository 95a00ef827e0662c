"""Take common words and short meanings out of WordNet 3.0 (Debian `wordnet-base`).

The extract is an intermediate file and not part of the repository; its licence is in NOTICE.
"""

import gzip
import json
import re
from pathlib import Path

_KINDS = {1: "noun", 2: "verb", 3: "adjective", 5: "adjective", 4: "adverb"}
_FILES = {"noun": "data.noun", "verb": "data.verb", "adjective": "data.adj", "adverb": "data.adv"}
_WORD = re.compile(r"[a-z]{3,14}")
_UNWANTED = re.compile(
    r"sex|drug|rape|murder|kill|slave|nazi|genital|prostitut|penis|vagina|breast|urin|feces|excret"
    r"|negro|whore|suicid|terroris|racis|torture|corpse|naked|nude|intercourse|semen|bomb|execut"
    r"|\bgod\b|\bhell\b|devil|satan|jew|muslim|christian|islam"
)


def extract(folder: Path, min_uses: int = 3) -> dict[str, list[object]]:
    """Return topics (nouns) and meanings of words that WordNet's tagged texts use often enough."""
    uses: dict[tuple[str, str], list[int]] = {}
    for line in (folder / "cntlist.rev").read_text().splitlines():
        key, sense, count = line.split()
        word, _, rest = key.partition("%")
        if int(sense) == 1 and int(count) >= min_uses and _WORD.fullmatch(word):
            kind = _KINDS[int(rest.partition(":")[0])]
            uses[word, kind] = [int(count)]
    meanings: dict[tuple[str, str], str] = {}
    for kind in _FILES:
        glosses = _glosses(folder / _FILES[kind])
        short = {"noun": "noun", "verb": "verb", "adjective": "adj", "adverb": "adv"}[kind]
        for line in (folder / f"index.{short}").read_text().splitlines():
            fields = line.split()
            if line.startswith(" ") or (fields[0], kind) not in uses:
                continue
            num_pointers = int(fields[3])
            first = fields[6 + num_pointers]
            meaning = _short(glosses.get(first, ""), fields[0])
            if meaning:
                meanings[fields[0], kind] = meaning
    ranked = sorted(meanings, key=lambda key: (-uses[key][0], key))
    rows = [[word, kind, meanings[word, kind]] for word, kind in ranked]
    topics = [w for (w, k) in sorted(uses, key=lambda key: (-uses[key][0], key)) if k == "noun"]
    return {"topics": [w for w in topics if not _UNWANTED.search(w)], "meanings": rows}


def _glosses(path: Path) -> dict[str, str]:
    rows = [line for line in path.read_text().splitlines() if not line.startswith(" ")]
    return {row.split(" ", 1)[0]: row.partition("| ")[2] for row in rows}


def _short(gloss: str, word: str) -> str | None:
    text = re.split(r"; |: ", re.sub(r"\([^)]*\)", "", gloss))[0]
    text = re.sub(r"\s+", " ", text).strip().rstrip(";:,")
    plain = text.isascii() and '"' not in text and 12 <= len(text) <= 90
    if not plain or word in text.split() or _UNWANTED.search(f"{text} {word}"):
        return None
    return text


def write(folder: Path, target: Path) -> tuple[int, int]:
    """Store the extract of the WordNet files in `folder`; return the numbers of both lists."""
    found = extract(folder)
    target.write_bytes(gzip.compress(json.dumps(found).encode(), mtime=0))
    return len(found["topics"]), len(found["meanings"])
