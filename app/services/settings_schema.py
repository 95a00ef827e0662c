"""What can be set: one struct, with range, label and help beside each value. No files, no widgets.

A field without a label is remembered, not shown. `fields()` feeds the settings page.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from app.services.settings_engine import AutoRestart
from app.services.settings_yield import (
    AutoYield,
    FloorGib,
    LeastShare,
    ReturnSeconds,
    ToFullScreen,
    ToPrograms,
)
from app.wording import Phrase, tr
from engine.protocol.messages import MissPolicy, Sampling

VERSION = 1

Kind = Literal["choice", "switch", "number", "text", "folder", "file"]
Value = str | int | float | bool


def _show(section: str, label: Phrase, help_text: Phrase, **more: object) -> dict[str, Any]:
    return {"section": section, "label": label, "help": help_text, **more}


class ModelProfile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was last chosen for one model; None = the engine's or the general choice."""

    kv_tokens: int | None = None
    expert_slots: int | None = None
    device: str = "cpu"  # that these two were chosen on; elsewhere they mean nothing
    custom_kv_tokens: int | None = None  # of the person's own division, kept while a preset holds
    custom_slots: int | None = None
    policy: MissPolicy | None = None
    sampling: Sampling | None = None
    system_prompt: str | None = None


class Settings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All settings, with their defaults. Unknown keys of a newer version are dropped on reading."""

    version: int = VERSION

    theme: Annotated[
        Literal["system", "dark", "light"],
        Meta(
            extra=_show(
                "general",
                tr("Appearance"),
                tr("System follows the desktop where it says which one it uses"),
                choices=(
                    ("system", tr("System")),
                    ("dark", tr("Dark")),
                    ("light", tr("Light")),
                ),
            )
        ),
    ] = "system"
    language: Annotated[
        Literal["", "en", "zh_CN", "pseudo"],
        Meta(
            extra=_show(
                "general",
                tr("Language"),
                tr("Changes at once"),
                choices=(("", tr("System")), ("en", "English"), ("zh_CN", "简体中文")),
            )
        ),
    ] = ""
    zoom: Annotated[
        float,
        Meta(
            ge=0.8,
            le=1.6,
            extra=_show(
                "general",
                tr("Zoom"),
                tr("Size of text and controls; also Ctrl + and Ctrl −"),
                step=0.1,
                scale=100,
                unit="%",
            ),
        ),
    ] = 1.0
    reduced_motion: Annotated[
        bool,
        Meta(
            extra=_show(
                "general", tr("Reduce motion"), tr("No animations; charts step once a second")
            )
        ),
    ] = False
    close_to_tray: Annotated[
        bool,
        Meta(
            extra=_show(
                "general",
                tr("Keep running in the tray"),
                tr("Closing the window leaves the engine and its model loaded"),
            )
        ),
    ] = False

    models_folder: Annotated[
        str,
        Meta(
            extra=_show(
                "storage",
                tr("Models folder"),
                tr("Where converted models are kept; looked at beside the app's own folder"),
                kind="folder",
            )
        ),
    ] = ""

    hub_endpoint: Annotated[
        str,
        Meta(
            extra=_show(
                "storage",
                tr("Model hub"),
                tr("Address of a mirror; empty is huggingface.co. It also gets the access token"),
            )
        ),
    ] = ""
    hub_proxy: Annotated[
        str,
        Meta(
            extra=_show(
                "storage",
                tr("Proxy"),
                tr(
                    "As http://host:port, also for a remote engine; empty follows the system, "
                    '"direct" uses none'
                ),
            )
        ),
    ] = ""

    load_last_model: Annotated[
        bool,
        Meta(
            extra=_show(
                "engine",
                tr("Load the last model at start"),
                tr("At the very first start the built-in model is prepared and loaded"),
            )
        ),
    ] = True
    idle_unload_min: Annotated[
        int,
        Meta(
            ge=0,
            le=1_440,
            extra=_show(
                "engine",
                tr("Unload when idle"),
                tr("After this time without a reply. The next message loads it again"),
                step=5,
                unit="min",
                least=tr("Never"),
            ),
        ),
    ] = 0
    budget_mib: Annotated[
        int,
        Meta(
            ge=0,
            le=1_048_576,
            extra=_show(
                "engine",
                tr("Memory for the engine"),
                tr("On the device. Counts from the next load"),
                step=64,
                unit="MiB",
                least=tr("Automatic"),
            ),
        ),
    ] = 0
    policy: Annotated[
        Literal["two_ended", "split", "fill_only", "cpu_only"],
        Meta(
            extra=_show(
                "engine",
                tr("Missing experts"),
                tr("For models that have no choice of their own yet; see Performance"),
                choices=(
                    ("two_ended", tr("Automatic")),
                    ("split", tr("Split")),
                    ("fill_only", tr("Copy all")),
                    ("cpu_only", tr("CPU only")),
                ),
            )
        ),
    ] = "two_ended"
    auto_restart: AutoRestart = False
    engine_threads: Annotated[
        int,
        Meta(
            ge=0,
            le=512,
            extra=_show(
                "engine",
                tr("CPU threads"),
                tr("Of the engine and its jobs; with fewer than two cores left free it is slower"),
                step=1,
                least=tr("Automatic"),
                restart=True,
            ),
        ),
    ] = 0
    engine_program: Annotated[
        str,
        Meta(
            extra=_show(
                "engine",
                tr("Other engine program"),
                tr("For engineers; empty uses the one that came with the app"),
                kind="file",
                restart=True,
            )
        ),
    ] = ""

    auto_yield: AutoYield = True
    yield_floor_gib: FloorGib = 1.0
    yield_return_s: ReturnSeconds = 20
    yield_least_share: LeastShare = 0.0
    yield_full_screen: ToFullScreen = True
    yield_apps: ToPrograms = ""

    system_prompt: Annotated[
        str,
        Meta(
            extra=_show(
                "chat", tr("System prompt"), tr("For new chats; each chat can have its own")
            )
        ),
    ] = ""
    sampling: Sampling | None = None  # None = what the model's own files say

    runtime_index: str = ""  # a row of its own, as are updates
    update_check: bool = False
    device: str = ""  # of models: "" = automatic, "cpu", or the id of a card; a row of its own
    update_told: str = ""  # version that was announced last

    remote_on: bool = False  # these three have rows of their own
    remote_url: str = ""
    remote_model: str = ""

    last_model: str = ""
    profiles: dict[str, ModelProfile] = {}
    geometry: str = ""  # of the window, base64
    rail_folded: bool = False
    tray_told: bool = False
    no_tray_told: bool = False
    first_run_told: bool = False
    runtime_told: str = ""  # key of the engine libraries that were offered last


@dataclass(frozen=True, slots=True)
class SettingField:
    """One row of the settings page.

    Attributes:
        key: attribute of `Settings`.
        section: "general", "storage", "engine", "yield" or "chat".
        kind: which control.
        choices: value and label of each choice.
        scale: factor from the stored to the shown number.
        least: what the least number means, where it is no number, as "Never".
        needs_restart: counts only from the next start of the engine on.
    """

    key: str
    section: str
    label: str
    help: str
    kind: Kind
    default: Value
    choices: tuple[tuple[str, str], ...] = ()
    minimum: float = 0.0
    maximum: float = 0.0
    step: float = 1.0
    scale: float = 1.0
    unit: str = ""
    least: str = ""
    needs_restart: bool = False


def fields() -> tuple[SettingField, ...]:
    """Return the rows of the settings page, in order, from the schema."""
    rows = []
    for info in msgspec.structs.fields(Settings):
        extra: dict[str, Any] = _extra(info.type)
        if "label" not in extra:
            continue
        meta = next(m for m in info.type.__metadata__ if isinstance(m, Meta))
        rows.append(
            SettingField(
                key=info.name,
                section=extra["section"],
                label=extra["label"],
                help=extra["help"],
                kind=_kind(extra, info.default),
                default=info.default,
                choices=extra.get("choices", ()),
                minimum=float(meta.ge or 0),
                maximum=float(meta.le or 0),
                step=float(extra.get("step", 1)),
                scale=float(extra.get("scale", 1)),
                unit=extra.get("unit", ""),
                least=extra.get("least", ""),
                needs_restart=extra.get("restart", False),
            )
        )
    return tuple(rows)


def _extra(annotation: object) -> dict[str, Any]:
    for meta in getattr(annotation, "__metadata__", ()):
        if isinstance(meta, Meta) and meta.extra:
            return dict(meta.extra)
    return {}


def _kind(extra: dict[str, Any], default: object) -> Kind:
    if "choices" in extra:
        return "choice"
    if isinstance(default, bool):
        return "switch"
    if isinstance(default, (int, float)):
        return "number"
    kind: Kind = extra.get("kind", "text")
    return kind


def checked(values: dict[str, Any]) -> tuple[Settings, tuple[str, ...]]:
    """Build settings from raw values, field by field.

    Returns: the settings, and the names of fields whose value was not usable: those have their
    default. Unknown keys are left out.
    """
    good: dict[str, Any] = {}
    bad = []
    for info in msgspec.structs.fields(Settings):
        if info.name not in values:
            continue
        try:
            good[info.name] = msgspec.convert(values[info.name], info.type)
        except msgspec.ValidationError:
            bad.append(info.name)
    return Settings(**good), tuple(bad)


Migration = Callable[[dict[str, Any]], dict[str, Any]]


def _from_0(values: dict[str, Any]) -> dict[str, Any]:
    """Trial builds wrote no version, and zoom in per cent."""
    zoom = values.get("zoom")
    if isinstance(zoom, int) and zoom >= 50:
        values["zoom"] = zoom / 100
    return values


# From each older version to the next one; nothing is ever removed from here.
MIGRATIONS: dict[int, Migration] = {0: _from_0}


def migrated(values: dict[str, Any]) -> dict[str, Any]:
    """Bring raw values of any older version up to now; a newer one is read as far as known."""
    values = dict(values)
    version = values.get("version", 0)
    version = version if isinstance(version, int) else 0
    while version < VERSION:
        values = MIGRATIONS[version](values)
        version += 1
    values["version"] = VERSION
    return values
