"""The split bar by mouse and keyboard: only legal divisions leave it, whatever is done to it."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QKeyEvent
from PySide6.QtTest import QTest

from app.predict.split import PAGE_TOKENS, Divider, Phase, Split
from app.widgets.look import use
from app.widgets.splitbar import SplitBar
from app.widgets.splitbar_paint import BAR, HEIGHT, RULER, Picture, ruler_step
from tests.app.performance.stubs import GIB, MIB, big_status, tiny_status

MIDDLE = int(RULER + BAR / 2)
KEYS = (
    Qt.Key.Key_Left,
    Qt.Key.Key_Right,
    Qt.Key.Key_PageUp,
    Qt.Key.Key_PageDown,
    Qt.Key.Key_Space,
    Qt.Key.Key_Return,
    Qt.Key.Key_Escape,
)
many = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))


def split_of(status):
    return Split.from_status(status.devices[0])


@pytest.fixture
def bar(qtbot):
    """The bar of the design pictures, 960 px wide, with its emitted divisions."""
    use("dark", 1.0, "en", True)
    widget = SplitBar()
    qtbot.addWidget(widget)
    widget.resize(960, int(HEIGHT))
    widget.show()
    show(widget, split_of(big_status()))
    return widget


def show(widget, split):
    widget.previews, widget.releases, widget.reverts = [], [], []
    widget.previewed.connect(widget.previews.append)
    widget.released.connect(widget.releases.append)
    widget.reverted.connect(lambda: widget.reverts.append(True))
    widget.show_split(split, split)


def place(widget, divider):
    sizes = widget.shown.sizes()
    picture = Picture(960.0, float(widget.shown.total_bytes), sizes, sizes)
    return QPoint(round(picture.divider_x(sizes, divider)), MIDDLE)


def drag(widget, divider, *xs):
    start = place(widget, divider)
    QTest.mousePress(widget, Qt.MouseButton.LeftButton, pos=start)
    for x in xs:
        QTest.mouseMove(widget, QPoint(x, MIDDLE))
    QTest.mouseRelease(widget, Qt.MouseButton.LeftButton, pos=QPoint(xs[-1], MIDDLE))


def test_drag_when_moved_left_then_previews_and_releases_once(bar):
    """While the button is down there are previews, at its end one wish."""
    before = bar.shown
    target = place(bar, Divider.KV).x() - 40
    drag(bar, Divider.KV, target + 20, target)
    assert len(bar.previews) == 2
    assert len(bar.releases) == 1
    wish = bar.releases[0]
    assert wish.kv_tokens < before.kv_tokens
    assert wish.expert_slots > before.expert_slots
    assert wish.is_legal


def test_click_when_not_moved_then_nothing_is_asked(bar):
    """Touching a handle is no wish."""
    point = place(bar, Divider.EXPERTS)
    QTest.mouseClick(bar, Qt.MouseButton.LeftButton, pos=point)
    assert (bar.previews, bar.releases) == ([], [])


def test_press_when_off_centre_then_the_handle_does_not_jump(bar):
    """The pointer may hold the handle anywhere; one pixel of movement is one pixel."""
    before = bar.shown.kv_bytes
    start = place(bar, Divider.KV) + QPoint(6, 0)
    QTest.mousePress(bar, Qt.MouseButton.LeftButton, pos=start)
    QTest.mouseMove(bar, start + QPoint(1, 0))
    pixel = bar.shown.total_bytes / 960
    assert abs(bar.previews[-1].kv_bytes - before) < 2 * pixel
    QTest.mouseRelease(bar, Qt.MouseButton.LeftButton, pos=start + QPoint(1, 0))


@many
@given(
    divider=st.sampled_from(Divider), xs=st.lists(st.integers(-200, 1200), min_size=1, max_size=5)
)
def test_drag_when_anywhere_then_only_legal_divisions(bar, divider, xs):
    """Also far outside the widget: bounds hold, pages are whole, the sum fits."""
    bar.show_split(split_of(big_status()), split_of(big_status()))
    drag(bar, divider, *xs)
    for split in (*bar.previews, *bar.releases):
        assert split.is_legal
        assert split.kv_tokens % PAGE_TOKENS == 0


@many
@given(keys=st.lists(st.sampled_from(KEYS), max_size=25))
def test_keys_when_any_sequence_then_only_legal_divisions(bar, keys):
    """The owner answers each wish at once; whatever is typed stays within the bounds."""
    holds = split_of(tiny_status())
    bar.show_split(holds, holds)
    for key in keys:
        before = len(bar.releases)
        QTest.keyClick(bar, key)
        if len(bar.releases) > before:
            holds = holds.like(bar.releases[-1])
            bar.show_split(holds, holds, Phase.APPLIED)
        if bar.reverts:
            bar.reverts.clear()
            bar.show_split(holds, holds)
    for split in (*bar.previews, *bar.releases):
        assert split.is_legal


def test_keys_when_arrow_then_one_per_cent_and_enter_asks(bar):
    """Right gives the left part 1 % of the card, PgUp 10 %, Enter asks for it."""
    before, total = bar.shown, bar.shown.total_bytes
    QTest.keyClick(bar, Qt.Key.Key_Right)
    assert bar.previews[-1].kv_bytes - before.kv_bytes == pytest.approx(0.01 * total, rel=0.01)
    QTest.keyClick(bar, Qt.Key.Key_Left)
    QTest.keyClick(bar, Qt.Key.Key_Space)
    QTest.keyClick(bar, Qt.Key.Key_PageDown)
    gone = before.expert_bytes - bar.previews[-1].expert_bytes
    assert gone == pytest.approx(0.10 * total, rel=0.01)
    assert bar.releases == []
    QTest.keyClick(bar, Qt.Key.Key_Return)
    assert bar.releases == [bar.previews[-1]]


def test_escape_when_previewing_then_reverts_and_is_kept_from_the_window(bar):
    """Esc takes a preview back instead of stopping the reply."""
    QTest.keyClick(bar, Qt.Key.Key_Right)
    override = QKeyEvent(
        QKeyEvent.Type.ShortcutOverride, Qt.Key.Key_Escape, Qt.KeyboardModifier.NoModifier
    )
    override.ignore()
    assert bar.event(override)
    assert override.isAccepted()
    QTest.keyClick(bar, Qt.Key.Key_Escape)
    assert bar.reverts == [True]


def test_drag_when_bounds_change_below_the_pointer_then_the_new_ones_hold(bar):
    """A status that arrives in the middle of a drag counts from the next pixel on."""
    start = place(bar, Divider.KV)
    QTest.mousePress(bar, Qt.MouseButton.LeftButton, pos=start)
    QTest.mouseMove(bar, start - QPoint(30, 0))
    status = big_status()
    pools = tuple(
        p
        if p.name != "kv"
        else type(p)(**{f: getattr(p, f) for f in p.__struct_fields__} | {"min_units": 400 * 1024})
        for p in status.devices[0].pools
    )
    tighter = Split({p.name: p for p in pools}, bar.shown.total_bytes, 512 * 1024, 1024)
    bar.show_split(tighter.like(bar.shown), tighter, Phase.PREVIEW)
    QTest.mouseMove(bar, start - QPoint(120, 0))
    assert bar.previews[-1].kv_tokens == 400 * 1024
    QTest.mouseRelease(bar, Qt.MouseButton.LeftButton, pos=start - QPoint(120, 0))


def test_drag_when_experts_are_yielded_then_it_goes_on_from_what_is_held(bar):
    """M-14: what auto-yield gave away under the pointer is not asked back by the next move."""
    before, after = split_of(big_status()), split_of(big_status(slots=300))
    show(bar, before)
    start = place(bar, Divider.KV)
    QTest.mousePress(bar, Qt.MouseButton.LeftButton, pos=start)
    QTest.mouseMove(bar, start - QPoint(30, 0))
    bar.show_split(after.like(bar.shown).with_slots(300), after, Phase.PREVIEW)
    QTest.mouseMove(bar, start - QPoint(60, 0))
    assert bar.shown.kv_tokens < before.kv_tokens
    assert 300 < bar.shown.expert_slots < 600  # what the context gave, not the 1,024 of before


def test_names_when_shown_then_all_parts_are_spoken(bar):
    """Assistive tools get every part with its size, and after a step the value that moved."""
    assert bar.accessibleName() == "VRAM split"
    assert "KV cache 3.4 GiB" in bar.accessibleDescription()
    assert "Other apps 1.8 GiB" in bar.accessibleDescription()
    bar.set_forecast("predicted 26 tokens per second")
    QTest.keyClick(bar, Qt.Key.Key_Left)
    assert bar.accessibleDescription().startswith("KV cache 3.1 GiB, ")
    assert bar.accessibleDescription().endswith("predicted 26 tokens per second")


def test_no_model_when_pressed_then_nothing_happens(bar):
    """The frame stays, says so, and cannot be moved."""
    bar.show_split(None)
    QTest.keyClick(bar, Qt.Key.Key_Right)
    QTest.mouseClick(bar, Qt.MouseButton.LeftButton, pos=QPoint(300, MIDDLE))
    assert bar.previews == []
    assert bar.accessibleDescription() == "No model is loaded."


@pytest.mark.parametrize("zoom", [0.8, 1.0, 1.6])
@pytest.mark.parametrize("tone", ["dark", "light"])
def test_paint_when_every_state_then_no_error(bar, tone, zoom):
    """All states in both tones at all zooms; a language change is followed at once."""
    use(tone, zoom, "en", True)
    for status in (big_status(), tiny_status(), tiny_status(slots=8), tiny_status(kv=512)):
        holds = split_of(status)
        moved = holds.by_shares(0.2, 0.3)
        for phase in Phase:
            asked = moved if phase is Phase.REFUSED else None
            bar.show_split(holds if phase is Phase.REFUSED else moved, holds, phase, asked)
            assert not bar.grab().isNull()
    use("dark", 1.0, "pseudo", True)
    assert bar.accessibleName() != "VRAM split"
    use("dark", 1.0, "en", True)
    assert bar.accessibleName() == "VRAM split"


def test_drag_when_zoomed_then_the_pointer_still_holds_the_handle(bar):
    """At 160 % the same part of the bar lies under the pointer."""
    use("dark", 1.6, "en", True)
    bar.resize(960, int(HEIGHT * 1.6))
    start = QPoint(place(bar, Divider.KV).x(), int(MIDDLE * 1.6))
    QTest.mousePress(bar, Qt.MouseButton.LeftButton, pos=start)
    QTest.mouseMove(bar, start + QPoint(-48, 0))
    lost = split_of(big_status()).kv_bytes - bar.previews[-1].kv_bytes
    assert lost == pytest.approx(48 / 960 * 32 * GIB, rel=0.02)
    QTest.mouseRelease(bar, Qt.MouseButton.LeftButton, pos=start)
    use("dark", 1.0, "en", False)


@pytest.mark.parametrize(
    ("total", "step", "unit"),
    [(32 * GIB, 4 * GIB, "GiB"), (48 * MIB, 8 * MIB, "MiB"), (6 * MIB, MIB, "MiB")],
)
def test_ruler_step_when_total_differs_then_few_round_ticks(total, step, unit):
    """At most ten ticks, in the unit that suits the device."""
    assert ruler_step(float(total))[0] == step
    assert ruler_step(float(total))[2] == unit
