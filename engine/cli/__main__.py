"""`python -m engine.cli VERB`: the engine in a terminal, without a window."""

import io
import sys
from collections.abc import Sequence

from engine.cli.chat import chat
from engine.protocol.errors import EngineError, ExitCode

VERBS = {"chat": chat}
USAGE, INTERRUPTED = 2, 130  # what shells expect


def main(words: Sequence[str]) -> int:
    """Run the verb named first; `chat` if there is none. Returns the exit code."""
    verb = words[0] if words and not words[0].startswith("-") else "chat"
    if verb not in VERBS:
        sys.stderr.write(f"Unknown verb {verb!r}; there are: {', '.join(VERBS)}.\n")
        return USAGE
    try:
        return VERBS[verb](words[1:] if words and words[0] == verb else words)
    except EngineError as problem:
        sys.stderr.write(f"{problem.message} {problem.hint}".rstrip() + "\n")
        return ExitCode.FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a pipe on Windows cannot write every letter
            stream.reconfigure(encoding="utf-8", errors="replace")
    raise SystemExit(main(sys.argv[1:]))
