"""`python -m kernels [device] [encoding]`: which implementation each operation takes, and why."""

import sys
from collections.abc import Sequence

from kernels.layouts import VALUE_DTYPES
from kernels.registry import choices


def main(arguments: Sequence[str]) -> int:
    """Print one line per operation: operation, implementation, why."""
    device = arguments[0] if arguments else "cpu"
    encoding = arguments[1] if len(arguments) > 1 else None
    if encoding is not None and encoding not in VALUE_DTYPES:
        sys.stderr.write(f"unknown encoding {encoding}; known: {', '.join(VALUE_DTYPES)}\n")
        return 1
    rows = [(c.op, c.name, c.reason) for c in choices(device, encoding)]
    width = [max(len(row[column]) for row in rows) for column in range(2)]
    for op, name, reason in rows:
        sys.stdout.write(f"{op:<{width[0]}}  {name:<{width[1]}}  {reason}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
