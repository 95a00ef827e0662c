"""Auto-yield in words: state, cause, what happened last. Pure; figures come in, phrases go out."""

from dataclasses import dataclass

from app.predict import amounts
from app.predict.yielding import Cause, Decision, YieldState
from app.wording import Phrase, tr

STATES: dict[YieldState, Phrase] = {
    YieldState.FULL: tr("Full"),
    YieldState.YIELDING: tr("Yielding"),
    YieldState.YIELDED: tr("Yielded"),
    YieldState.RESTORING: tr("Restoring"),
}


@dataclass(frozen=True, slots=True)
class Terms:
    """The figures that sentences need.

    Attributes:
        floor_bytes, free_bytes: of the device; free None = unknown.
        return_after_s: calm time.
        slots, wanted: held, and held when nobody else needs memory.
        emulated: no GPU: an ordinary buffer stands for VRAM.
    """

    floor_bytes: int
    free_bytes: int | None
    return_after_s: float
    slots: int = 0
    wanted: int = 0
    emulated: bool = False


def describe(emulated: bool) -> Phrase:
    """Say what auto-yield does, while it does nothing."""
    if emulated:
        return tr("VRAM is emulated here: RAM is given back while a listed program runs.")
    return tr("Gives VRAM back when a full-screen app starts or free memory falls below the floor.")


def explain(decision: Decision, terms: Terms) -> Phrase:
    """Say why the state is what it is."""
    cause, app = decision.cause, decision.app
    if decision.state is YieldState.RESTORING:
        held, wanted = f"{terms.slots:,}", f"{terms.wanted:,}"
        return tr(
            "Taking memory back in steps: {held} of {wanted} slots.", held=held, wanted=wanted
        )
    if cause is Cause.KEPT:
        return tr("{app} runs; you took the memory back.", app=app or tr("A full-screen app"))
    if cause is Cause.FLOOR:
        size = amounts.memory(terms.floor_bytes)
        return tr("Full as far as the floor allows: {size} stay free for others.", size=size)
    if decision.state is YieldState.FULL:
        return describe(terms.emulated)
    if cause in (Cause.APP, Cause.FULL_SCREEN):
        return tr(
            "{app} runs. Memory returns {time} after it ends.",
            app=app or tr("A full-screen app"),
            time=amounts.duration(terms.return_after_s),
        )
    if cause is Cause.MANUAL:
        return tr("Given back by hand, until you take it back.")
    if cause is Cause.CALM:
        return tr("Memory returns in {time}.", time=amounts.duration(decision.returns_in_s))
    return _short_of_memory(terms)


def _short_of_memory(terms: Terms) -> Phrase:
    floor = amounts.memory(terms.floor_bytes)
    if terms.free_bytes is None:
        return tr("Other programs need memory; the floor is {floor}.", floor=floor)
    free = amounts.memory(terms.free_bytes)
    return tr(
        "Other programs need memory: {free} are free, the floor is {floor}.", free=free, floor=floor
    )


def event_words(cause: Cause, app: str) -> Phrase:
    """Name a yield for the chart, in few words."""
    if cause is Cause.APP and app:
        return tr("{app}: yielded", app=app)
    words = {
        Cause.FULL_SCREEN: tr("Full screen: yielded"),
        Cause.MEMORY: tr("Memory short: yielded"),
    }
    return words.get(cause, tr("Yielded"))


def last_words(clock: str, size_bytes: int, seconds: float, given: bool) -> Phrase:
    """Say what happened last, and when: a yield with its time, or the return."""
    size = amounts.memory(size_bytes)
    if given:
        time = amounts.milliseconds(seconds * 1e3)
        return tr("Last: {clock}, {size} in {time}", clock=clock, size=size, time=time)
    return tr("Last: {clock}, {size} back", clock=clock, size=size)
