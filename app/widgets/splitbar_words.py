"""What the split bar says: names of the parts, bubble, spoken values, bounds."""

from app.predict import amounts
from app.predict.split import ORDER, Divider, PartName, Split
from app.wording import Phrase, tr, tr_count

NAMES: dict[PartName, Phrase] = {
    "weights": tr("Weights"),
    "kv": tr("KV cache"),
    "experts": tr("Experts"),
    "runtime": tr("Runtime"),
    "free": tr("Free"),
    "other": tr("Other apps"),
}


def units_of(split: Split, divider: Divider) -> Phrase:
    """The size of what the divider moves: "226K tokens" or "1,176 slots"."""
    if divider is Divider.KV:
        return tr("{count} tokens", count=amounts.tokens(split.kv_tokens))
    return tr_count("{count} slot", "{count} slots", split.expert_slots)


def bubble(split: Split, divider: Divider) -> Phrase:
    """The text over the handle while it moves."""
    part: PartName = "kv" if divider is Divider.KV else "experts"
    return tr(
        "{part}  {size} · {units}",
        part=NAMES[part],
        size=amounts.memory(split.sizes()[part]),
        units=units_of(split, divider),
    )


def slots_inside(split: Split, num_experts: int) -> Phrase:
    """How many of the model's experts (0 = not known) are on the device."""
    most = num_experts or split.pools["experts"].max_units
    return tr("{slots} of {most} slots", slots=f"{split.expert_slots:,}", most=f"{most:,}")


def spoken(split: Split, divider: Divider) -> Phrase:
    """One step, as it is read out: part, size, units."""
    part: PartName = "kv" if divider is Divider.KV else "experts"
    count = split.kv_tokens if divider is Divider.KV else split.expert_slots
    size = amounts.memory(split.sizes()[part])
    if divider is Divider.KV:
        return tr("{part} {size}, {count} tokens", part=NAMES[part], size=size, count=f"{count:,}")
    return tr("{part} {size}, {count} slots", part=NAMES[part], size=size, count=f"{count:,}")


def described(split: Split) -> str:
    """All parts with their sizes, for assistive tools."""
    sizes = split.sizes()
    return ", ".join(f"{NAMES[name]} {amounts.memory(sizes[name])}" for name in ORDER)


def bounds_text(split: Split, part: PartName) -> Phrase:
    """What a part may become; for the note below the bar and the tool tip."""
    if part == "weights":
        return tr("Weights stay as they are while the model is loaded.")
    if part == "kv":
        low, high = split.bounds(Divider.KV)
        return tr(
            "KV cache: {low} to {high} tokens, {busy} in use.",
            low=amounts.tokens(low),
            high=amounts.tokens(high),
            busy=amounts.tokens(split.pools["kv"].busy_units),
        )
    if part == "experts":
        low, high = split.bounds(Divider.EXPERTS)
        return tr(
            "Experts: {low} to {high} slots of {unit} each.",
            low=f"{low:,}",
            high=f"{high:,}",
            unit=amounts.memory(split.pools["experts"].unit_bytes),
        )
    if part == "runtime":
        return tr("Runtime: work space of the engine, fixed while loaded.")
    if part == "free":
        return tr("Free: nobody uses it. Move a divider to give it to the experts.")
    return tr("Other apps: not ours to move.")
