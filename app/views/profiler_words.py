"""Findings and stages of the profiler in words. Pure."""

from PySide6.QtCore import QDateTime, QLocale

from app.predict import amounts
from app.predict.diagnosis import Finding
from app.predict.profiles import Profile
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


def _pair(finding: Finding) -> dict[str, object]:
    return {"fills": round(100 * finding.value), "cpu": round(100 * finding.other)}


def when(profile: Profile) -> str:
    """Return day and time of a measurement in the language in use."""
    moment = QDateTime.fromSecsSinceEpoch(int(profile.measured_at_s))
    if language() == "zh_CN":
        return moment.toString("yyyy年M月d日 HH:mm")
    return QLocale(QLocale.Language.English).toString(moment, "d MMM yyyy, HH:mm")


def run_words(profile: Profile) -> str:
    """Return a line of the history: when and for which format."""
    return f"{when(profile)} · {figures.weight_format(profile.format)}"
