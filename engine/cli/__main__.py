"""`python -m engine.cli VERB`: the engine in a terminal, without a window."""

import sys

from engine.cli.chat import chat

VERBS = {"chat": chat}


def main() -> int:
    """Run the verb named first; `chat` if there is none."""
    words = sys.argv[1:]
    verb = words[0] if words and not words[0].startswith("-") else "chat"
    if verb not in VERBS:
        sys.stderr.write(f"Unknown verb {verb!r}; there are: {', '.join(VERBS)}.\n")
        return 2
    return VERBS[verb](words[1:] if words and words[0] == verb else words)


if __name__ == "__main__":
    raise SystemExit(main())
