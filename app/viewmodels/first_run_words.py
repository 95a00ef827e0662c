"""The first run in words: parts of the machine with verdict, the text of each step. Pure."""

from dataclasses import dataclass

from app.predict import amounts
from app.predict.fit import Fit
from app.predict.hardware import Check, Suggestion
from app.services.machine_facts import MachineFacts
from app.viewmodels.first_run import FirstRunViewModel, Offer
from app.wording import Phrase, figures, tr, tr_count

ICONS = {"card": "gpu", "driver": "settings", "ram": "ram", "disk": "disk", "link": "link"}
_NAMES: dict[str, Phrase] = {
    "card": tr("Graphics card"),
    "driver": tr("Driver"),
    "ram": tr("Memory"),
    "disk": tr("Disk"),
    "link": tr("Link"),
}
_NONE, _UNKNOWN = tr("None found"), tr("Not known")


@dataclass(frozen=True, slots=True)
class PartWords:
    """A part of the machine: icon, name, its number, and the verdict."""

    icon: str
    name: str
    value: str
    verdict: str


def part_words(check: Check, facts: MachineFacts) -> PartWords:
    """Return how a judgement is told."""
    say = {"card": _card, "driver": _driver, "ram": _ram, "disk": _disk, "link": _link}
    value, verdict = say[check.part](check, facts)
    return PartWords(ICONS[check.part], _NAMES[check.part], value, verdict)


def _card(check: Check, facts: MachineFacts) -> tuple[str, str]:
    if check.value < 0 or facts.gpu is None:
        return _NONE, tr("The CPU computes; that works, more slowly")
    size = amounts.memory(check.value)
    value = tr("{name}, {size}", name=figures.card_name(facts.gpu.name), size=size)
    if check.tone == "warn":
        least = amounts.memory(check.other)
        return value, tr("Little: {least} or more leave room for a cache", least=least)
    return value, tr("Room for context and experts")


def _driver(check: Check, facts: MachineFacts) -> tuple[str, str]:
    if check.value < 0 or facts.gpu is None:
        return _NONE, tr("Only an NVIDIA card needs one")
    if check.tone == "warn":
        return facts.gpu.driver, tr("Update it: {least} or newer", least=round(check.other))
    return facts.gpu.driver, tr("New enough")


def _ram(check: Check, facts: MachineFacts) -> tuple[str, str]:
    largest = amounts.disk(check.other)
    modules = facts.modules.count
    size = amounts.memory(check.value)
    value: str = size
    if modules:
        value = tr_count("{size}, {count} module", "{size}, {count} modules", modules, size=size)
    if check.tone == "warn":
        return value, tr("For models up to {size}; those of the list are larger", size=largest)
    return value, tr("For models up to {size}", size=largest)


def _disk(check: Check, _facts: MachineFacts) -> tuple[str, str]:
    need = amounts.disk(check.other)
    if check.value < 0:
        return _UNKNOWN, tr("A first large model takes {need}", need=need)
    value = tr("{size} free", size=amounts.disk(check.value))
    if check.tone == "warn":
        return value, tr("A first large model takes {need}", need=need)
    return value, tr("Enough for a first large model")


def _link(check: Check, facts: MachineFacts) -> tuple[str, str]:
    gpu = facts.gpu
    if gpu is None:
        return _NONE, tr("Without a card there is none to judge")
    if check.value < 0:
        return _UNKNOWN, tr("The measurement will tell")
    generation = f"{gpu.best_generation}.0" if gpu.best_generation else ""
    value = f"PCIe {generation} ×{check.value:.0f}".replace("  ", " ")
    if check.tone == "warn":
        width, lanes = round(check.value), round(check.other)
        return value, tr("{width} of {all} lanes: try another slot", width=width, all=lanes)
    return value, tr("All lanes in use")


def hardware_text(vm: FirstRunViewModel) -> Phrase:
    """Return the line below "Your hardware"."""
    if vm.facts is None:
        return tr("Being looked at.")
    return tr("Models up to about {size} can run here.", size=amounts.disk(vm.largest_bytes))


def engine_text(vm: FirstRunViewModel) -> str:
    """Return the line below "The engine"."""
    trouble = vm.session.trouble
    if vm.state("engine") == "failed" and trouble is not None:
        return trouble.sentence
    if not vm.client.is_ready:
        return tr("It comes with the app and is starting.")
    real = [device for device in vm.client.devices if not device.emulated]
    version = vm.client.version
    if real:
        return tr("Version {version} runs, on {device}.", version=version, device=real[0].title)
    return tr("Version {version} runs. It computes on the CPU here.", version=version)


def measure_text(vm: FirstRunViewModel) -> str:
    """Return the line below "Measure your links"."""
    profile, error = vm.profiler.profile, vm.profiler.error
    state = vm.state("measure")
    if state == "failed" and error is not None:
        return f"{error.message} {error.hint}".strip()
    if state == "done" and profile is not None:
        return tr(
            "Copies {fill} GB/s, CPU {cpu} GB/s. Predictions are made for this PC.",
            fill=amounts.number(profile.fill_gbps),
            cpu=amounts.number(profile.cpu_gbps),
        )
    return tr("10 to 20 seconds. Predictions are then made for this PC, not for an average one.")


def model_text(vm: FirstRunViewModel) -> str:
    """Return the line below "Choose a first model"."""
    if vm.facts is None or vm.offers or vm.state("model") == "wait":
        return tr("At most three that fit, fastest first. You can add others at any time.")
    need = amounts.disk(vm.smallest_bytes)
    return tr("The smallest one of the list takes {need}: too much for this PC now.", need=need)


def offer_reason(offer: Offer) -> str:
    """Return why a model is offered, and where it stands in the order."""
    one: Suggestion = offer.suggestion
    need, have = amounts.memory(one.advice.need_bytes), amounts.memory(one.advice.have_bytes)
    words = tr("takes {need} of {have} of free memory", need=need, have=have)
    if one.advice.fit is Fit.TIGHT:
        words = tr("takes {need}; free now {have}, close programs first", need=need, have=have)
    read = tr("reads {size} a token", size=amounts.disk(one.read_bytes))
    return "  ·  ".join((figures.weight_format(offer.entry.quant), words, read))


def offer_speed(offer: Offer) -> str:
    """Return the predicted speed, or that there is none yet."""
    guess = offer.suggestion.guess
    if guess is None:
        return tr("Speed not measured")
    low, high = amounts.number(guess.low), amounts.number(guess.high)
    return tr("{low}–{high} tok/s", low=low, high=high)
