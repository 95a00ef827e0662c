"""Findings and stages of the profiler in words. Pure."""

from PySide6.QtCore import QDateTime, QLocale

from app.predict import amounts
from app.predict.diagnosis import Finding
from app.predict.profiles import Profile
from app.services.job_state import JobState
from app.wording import Phrase, figures, language, tr


def finding_words(finding: Finding) -> tuple[str, str, Phrase, Phrase]:
    """Return icon, ink, title and text of a finding."""
    icon, role = ("check", "accentText") if finding.is_good else ("warn", "warn")
    if finding.kind == "emulated":
        return (
            "info",
            "link",
            tr("No GPU: the copy stays in main memory"),
            tr("Bₚ is a memory-to-memory copy here, not a transfer over PCIe."),
        )
    if finding.kind == "link":
        title = tr("{link}, full speed") if finding.is_good else tr("Slower than {link} could be")
        text = tr(
            "{got} of about {top} GB/s that such links reach.",
            got=amounts.number(finding.value),
            top=amounts.number(finding.other),
        )
        return icon, role, tr(title.key, link=finding.name), text
    if finding.kind in _AROUND:
        return (icon, role, *_AROUND[finding.kind](finding))
    if finding.kind == "small":
        text = tr(
            "One expert is {size}. Copies of that size reach {share} of the best rate.",
            size=amounts.memory(finding.other),
            share=amounts.share(finding.value),
        )
        return icon, role, tr("Small experts cost speed on the link"), text
    if finding.kind == "together":
        text = tr("{rate} GB/s with both at work.", rate=amounts.number(finding.other))
        gain = amounts.share(finding.value - 1)
        return icon, role, tr("Both at once bring {gain} more", gain=gain), text
    if finding.kind == "apart":
        text = tr(
            "Copies and CPU read the same memory: {rate} GB/s in all.",
            rate=amounts.number(finding.other),
        )
        return icon, role, tr("Both at once bring little"), text
    text = tr(
        "Of 100 missing experts about {fills} are best copied, {cpu} computed by the CPU.",
        fills=round(100 * finding.value),
        cpu=round(100 * finding.other),
    )
    return "info", "link", tr("Split misses {fills} to {cpu}", **_pair(finding)), text


def _narrow(finding: Finding) -> tuple[Phrase, Phrase]:
    width, lanes = round(finding.value), round(finding.other)
    title = tr("The link runs at ×{width} of ×{all}", width=width, all=lanes)
    if not finding.name:
        return title, tr("Another slot may give all lanes.")
    return title, tr("All lanes would carry about {top} GB/s. Try another slot.", top=finding.name)


def _channel(finding: Finding) -> tuple[Phrase, Phrase]:
    read = amounts.number(finding.value)
    if finding.other <= 0:
        text = tr("The CPU reads {got} GB/s. A second module of the same size helps.", got=read)
    else:
        text = tr(
            "The CPU reads {got} GB/s; one channel gives at most {top}. Use two modules in the "
            "slots that the board's manual names.",
            got=read,
            top=amounts.number(finding.other),
        )
    return tr("Memory works with a single channel"), text


def _battery(_finding: Finding) -> tuple[Phrase, Phrase]:
    return tr("Measured on battery"), tr("CPU and card save power then. Plug in, measure again.")


def _busy(finding: Finding) -> tuple[Phrase, Phrase]:
    share = amounts.share(finding.value)
    text = tr(
        "Other programs used {share} of its time before the run. Close them, measure again.",
        share=share,
    )
    return tr("The graphics card was busy"), text


def _hot(finding: Finding) -> tuple[Phrase, Phrase]:
    text: Phrase = tr(
        "It was {heat} °C hot. Let it cool down, clear its fans, measure again.",
        heat=round(finding.other),
    )
    if finding.value >= 0.01:
        text = tr(
            "It was {heat} °C hot, and {share} slower than in your best run. Let it cool down, "
            "clear its fans, measure again.",
            heat=round(finding.other),
            share=amounts.share(finding.value),
        )
    return tr("Heat slows the graphics card down"), text


def _slower(finding: Finding) -> tuple[Phrase, Phrase]:
    title = tr("{share} below your best run", share=amounts.share(finding.value))
    best = amounts.number(finding.other)
    return title, tr("Copies reached {best} GB/s then. Something else may use the link.", best=best)


_AROUND = {
    "narrow": _narrow,
    "channel": _channel,
    "battery": _battery,
    "busy": _busy,
    "hot": _hot,
    "slower": _slower,
}


def _pair(finding: Finding) -> dict[str, object]:
    return {"fills": round(100 * finding.value), "cpu": round(100 * finding.other)}


def when(profile: Profile) -> str:
    """Return day and time of a measurement in the language in use."""
    moment = QDateTime.fromSecsSinceEpoch(int(profile.measured_at_s))
    if language() == "zh_CN":
        return moment.toString("yyyy/M/d HH:mm")
    return QLocale(QLocale.Language.English).toString(moment, "d MMM yyyy, HH:mm")


def run_words(profile: Profile) -> str:
    """Return a line of the history: when and for which format."""
    return f"{when(profile)} · {figures.weight_format(profile.format)}"


def change_words(change: float | None) -> str:
    """Return a change as "+3 %", "−12 %" or "±0 %"; "" where there was no run before."""
    if change is None:
        return ""
    whole = round(100 * change)
    sign = "±" if whole == 0 else "+" if whole > 0 else amounts.MINUS
    return f"{sign}{abs(whole)} %"


def progress_words(job: JobState | None) -> str:
    """Say what is being measured, how far, how long still."""
    if job is None or job.progress is None or job.phase == "waiting":
        return tr("Starts as soon as the machine is free for it.")
    if job.is_cancelling:
        return tr("Cancelling.")
    if job.is_stalled:
        return tr("No progress for a minute. It can be cancelled.")
    done, total = job.progress.done_bytes, job.progress.total_bytes
    words = tr("Step {done} of {total}", done=min(done + 1, total), total=total)
    encoding, _, what = job.progress.detail.partition(": ")
    detail = f"{figures.weight_format(encoding)}: {what}" if what else encoding
    parts = [str(words), detail]
    if job.eta_s is not None:
        parts.append(str(tr("{time} left", time=amounts.duration(job.eta_s))))
    return "  ·  ".join(part for part in parts if part)
