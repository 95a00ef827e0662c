"""Whether a request can ever run, and whether it may start now. Integers only.

Called by `engine.scheduler.scheduler`.
"""

from engine.memory.budget import PAGE_TOKENS
from engine.protocol.errors import InvalidRequest
from engine.scheduler.request import Request


def num_pages(tokens: int) -> int:
    """Return the pages that hold `tokens`."""
    return -(-tokens // PAGE_TOKENS)


def check_request(request: Request, context_tokens: int, most_tokens: int) -> None:
    """Refuse at once what could never run (case A-02: no endless waiting).

    `most_tokens`: what the context memory holds, or can grow to by itself.
    Raises: InvalidRequest with both numbers.
    """
    request.sampling.check()
    length = len(request.prompt)
    if not length:
        raise InvalidRequest("The prompt is empty.", "Send at least one message.")
    if length > context_tokens:
        raise InvalidRequest(
            f"The prompt has {length:,} tokens; this model reads at most {context_tokens:,}.",
            "Shorten the conversation.",
        )
    if length > most_tokens:
        raise InvalidRequest(
            f"The prompt has {length:,} tokens; the context memory can hold {most_tokens:,}.",
            "Shorten the conversation, or give the context more memory.",
        )


def pages_to_start(request: Request, num_running: int) -> int:
    """Return the free pages with which a waiting request may start beside those that run.

    Beside its own pages, each running one keeps a page to grow into; else the newcomer would be
    preempted at once.
    """
    if not num_running:
        return num_pages(request.fill_tokens)
    return num_pages(request.fill_tokens + 1) + num_running
