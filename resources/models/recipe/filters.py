"""Which replies of the teacher are kept. Each rule has a name, so that its share can be told."""

# ruff: noqa: E501  texts are data

import itertools
import re
from collections import Counter

from recipe.prompts import Prompt

_UNWANTED = re.compile(
    r"\bas an? (ai|language|digital|helpful)|language model|\bI'?m (not|unable|sorry)|\bI (cannot|can't|don't|apologize)"
    r"|\[|\]|https?:|www\.|\$|\|\||\bSure\b|Here('s| is| are) (a|an|the|some|three|four|five|six) |\bassistant\b"
    r"|\bhelpful\b.*\banswer|\bprompt\b|\bsentences?\b.*\bwords?\b|\bsex|\bkill|\bmurder|\bsuicid|\bdrug|\bgun\b"
    r"|\bblood\b.*\bdeath|\brap(e|ed|ist)\b|\bslave|\bnazi|\bterroris|\bbomb"
    r"|\*\*|#|```|\\|<|>|\{|\}|_|=",
    re.IGNORECASE,
)
_ITEM = re.compile(r"^\s*(?:\d+[.)]|[-*•])\s+", re.MULTILINE)
_WORD = re.compile(r"[a-z']+")
_END = ('.', '!', '?', '."', '!"', '?"', ".'")  # fmt: skip


def reject(prompt: Prompt, reply: str, finished: bool) -> str | None:
    """Return the name of the rule that drops a reply, or None if it is kept."""
    if not finished:
        return "cut off"
    if len(reply) < 20 or (prompt.family.startswith("t_story") and len(reply) < 250):
        return "short"
    if not reply.isascii() or any(ord(c) < 32 and c != "\n" for c in reply):
        return "letters"
    if _UNWANTED.search(reply):
        return "unwanted"
    if prompt.items and len(_ITEM.findall(reply)) != prompt.items:
        return "items"
    if not prompt.items and not reply.endswith(_END) and prompt.family != "t_poem":
        return "no end"
    lower = reply.lower()
    if any(word.lower().rstrip("sy") not in lower for word in prompt.must):
        return "off topic"
    if not prompt.family.startswith("t_story") and len(reply) > 900:
        return "long"
    return "repeats" if repeats(reply) else None


def repeats(reply: str) -> bool:
    """Return whether a text repeats itself: 4-grams, whole sentences, or sentence beginnings."""
    words = _WORD.findall(reply.lower())
    if len(words) >= 12:
        grams = Counter(zip(words, words[1:], words[2:], words[3:], strict=False))
        again = sum(count - 1 for count in grams.values())
        if again > 0.06 * len(words) or max(grams.values()) > 2:
            return True
        pairs = Counter(itertools.pairwise(words))
        if len(words) > 40 and len(pairs) < 0.72 * (len(words) - 1):
            return True
    sentences = [s.strip().lower() for s in re.split(r"[.!?\n]+", reply) if len(s.strip()) > 12]
    if len(set(sentences)) < len(sentences):
        return True
    starts = Counter(" ".join(s.split()[:3]) for s in sentences)
    return len(sentences) >= 4 and max(starts.values()) > max(2, 0.4 * len(sentences))


def keep_best(scores: dict[str, list[float]], drop: float) -> dict[str, float]:
    """Return the least score to keep of each family, so that the share `drop` goes."""
    return {f: sorted(values)[int(drop * len(values))] for f, values in scores.items()}
