"""Decode speed from stats frames, without the frames that tell too little. Pure.

A frame says how many tokens came in its interval. The first one of a reply holds its prefill too,
the last one the silence after it, and a slow model brings a token or none: each would show a speed
that never was. So frames are averaged until they hold enough, and partial ones are left out.
"""

from engine.protocol.messages import Finished, Stats

LEAST_TOKENS, MOST_S = 8.0, 2.0


class DecodeWindow:
    """Averages the frames of the replies that are being written."""

    def __init__(self) -> None:
        self._is_open = False
        self._frames: list[Stats] = []
        self.num_running = 0

    def take(self, event: Stats) -> Stats | None:
        """Take a frame; return one for a stretch of decode as soon as it holds enough."""
        self.num_running = event.running
        if not event.running:
            self._is_open = False
            self._frames.clear()
        elif self._is_open:
            self._frames.append(event)
            span_s = sum(frame.interval_s for frame in self._frames)
            tokens = sum(_tokens(frame) for frame in self._frames)
            if tokens > 0 and (tokens >= LEAST_TOKENS or span_s >= MOST_S):
                frames, self._frames = self._frames, []
                return _mean(frames, tokens, span_s)
        elif event.decode_tokens_per_s > 0:
            self._is_open = True  # from here on; this frame holds the prefill too
        return None


def frame_of(event: Finished, routes: int) -> Stats | None:
    """Return a whole reply as one frame; None for one without decode.

    Args:
        event: the end of the reply.
        routes: of one token.
    """
    trace = event.trace
    if trace.decode_tokens_per_s <= 0 or trace.decode_s <= 0:
        return None
    return Stats(
        interval_s=trace.decode_s,
        decode_tokens_per_s=trace.decode_tokens_per_s,
        hit_share=trace.hit_share,
        fill_share=trace.fill_share,
        cpu_share=trace.cpu_share,
        fill_gbps=trace.fill_gbps,
        cpu_gbps=trace.cpu_gbps,
        routes=routes * event.usage.reply_tokens,
    )


def _tokens(frame: Stats) -> float:
    return frame.decode_tokens_per_s * frame.interval_s


def _mean(frames: list[Stats], tokens: float, span_s: float) -> Stats:
    """One frame for several: speed over time, shares and links by what each frame served."""
    routes = sum(frame.routes for frame in frames)

    def mean(name: str) -> float:
        return sum(getattr(f, name) * f.routes for f in frames) / routes if routes else 0.0

    return Stats(
        interval_s=span_s,
        running=frames[-1].running,
        decode_tokens_per_s=tokens / span_s,
        hit_share=mean("hit_share"),
        fill_share=mean("fill_share"),
        cpu_share=mean("cpu_share"),
        fill_gbps=mean("fill_gbps"),
        cpu_gbps=mean("cpu_gbps"),
        routes=routes,
    )
