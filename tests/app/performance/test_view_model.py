"""The Performance page's state: preview, pending, applied, refused, and what figures make of it."""

import math

import pytest

from app.predict.split import Phase
from app.services.settings import SettingsStore
from app.viewmodels.performance import PerformanceViewModel
from app.viewmodels.performance_history import SPANS, Event, History
from app.viewmodels.performance_presets import CUSTOM
from app.viewmodels.performance_state import PRESETS
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode
from tests.app.performance.stubs import (
    BIG,
    EMPTY,
    StubClient,
    big_status,
    cache_map,
    profile_bytes,
    stats,
    tiny_status,
)


class Clock:
    """Seconds that pass only when told."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def client(qapp):
    return StubClient()


@pytest.fixture
def vm(client, clock, tmp_path):
    made = PerformanceViewModel(client, tmp_path, clock)
    client.tell_status(big_status())
    return made


def finished(speed):
    trace = m.Trace(
        decode_s=2.0, decode_tokens_per_s=speed, hit_share=0.6, fill_share=0.3, cpu_share=0.1
    )
    usage = m.Usage(reply_tokens=40)
    return m.Finished(id="reply-1", reason=m.FinishReason.STOP, usage=usage, trace=trace)


def refused(client, reason="Not below 1.2 GiB.", number=None):
    client.resize_refused.emit(
        m.ResizeRefused(
            id=f"resize-{number or len(client.resizes)}", reason=reason, kv_tokens=0, expert_slots=0
        )
    )


def test_status_when_model_then_shown_as_the_engine_says(vm):
    """All bounds come from the status; nothing is asked for by itself."""
    assert (vm.shown.kv_tokens, vm.shown.expert_slots) == (512 * 1024, 1024)
    assert vm.phase is Phase.IDLE
    assert vm.preset == len(PRESETS)


def test_preview_when_moves_follow_quickly_then_the_engine_is_asked_once(vm, client, qtbot):
    """Only 150 ms after the last move; the newest division is what it is asked about."""
    for slots in (900, 800, 700):
        vm.preview(vm.applied.with_slots(slots))
    assert client.resizes == []
    qtbot.waitUntil(lambda: bool(client.resizes), timeout=2000)
    assert client.resizes == [(512 * 1024, 700, True)]
    assert vm.phase is Phase.PREVIEW


def test_preview_when_the_engine_objects_then_says_why(vm, client, qtbot):
    """A division that would not fit is named before it is asked for; old answers are ignored."""
    vm.preview(vm.applied.with_slots(700))
    qtbot.waitUntil(lambda: bool(client.resizes), timeout=2000)
    answer = m.ResizePreview(
        id="resize-1", kv_tokens=1, expert_slots=1, kv_bytes=1, expert_bytes=1, free_bytes=0,
        fits=False, reason="12 MiB too much.",
    )  # fmt: skip
    client.resize_preview.emit(m.ResizePreview(**{**_fields(answer), "id": "resize-0"}))
    assert vm.note.tone == "info"
    client.resize_preview.emit(answer)
    assert (vm.note.tone, vm.note.text) == ("warn", "12 MiB too much.")


def test_release_when_asked_then_only_what_changed_is_sent(vm, client):
    """A pool that stays is left out of the command."""
    vm.release(vm.applied.with_slots(700))
    assert client.asked == [(None, 700)]
    assert vm.phase is Phase.PENDING


def test_release_when_it_is_what_holds_then_nothing_is_sent(vm, client):
    """Back at its own place there is nothing to do."""
    vm.preview(vm.applied.with_slots(700))
    vm.release(vm.applied)
    assert client.asked == []
    assert vm.phase is Phase.IDLE


def test_pending_when_slow_then_says_who_holds_it(vm, client):
    """After two seconds the sentence names what is waited for."""
    vm.release(vm.applied.with_slots(700))
    client.resize_pending.emit(m.ResizePending(id="resize-1", waiting_for="the prefill of a chat"))
    assert vm.note.text == "Waiting for a safe point."
    vm._slow.timeout.emit()
    assert vm.note.text == "Still waiting for the prefill of a chat."


def test_applied_when_answered_then_milliseconds_and_undo(vm, client):
    """The pause is said; undo asks for what was before."""
    vm.release(vm.applied.with_slots(700))
    client.apply(512 * 1024, 700)
    assert vm.phase is Phase.APPLIED
    assert (vm.note.text, vm.note.can_undo) == ("Applied in 31 ms.", True)
    client.tell_status(big_status(slots=700))
    assert vm.shown.expert_slots == 700
    vm._tick.timeout.emit()
    assert vm.phase is Phase.IDLE
    assert vm.note.can_undo
    vm.undo()
    assert client.asked[-1] == (None, 1024)


def test_refused_when_answered_then_snaps_back_and_remembers_what_was_asked(vm, client):
    """The bar shows the engine's division again, a mark where it was asked, and the reason."""
    wish = vm.applied.with_kv(200 * 1024)
    vm.release(wish)
    refused(client)
    assert vm.phase is Phase.REFUSED
    assert vm.shown.same_as(vm.applied)
    assert vm.asked.same_as(wish)
    assert vm.note.text == "Not below 1.2 GiB."
    vm.preview(vm.applied.with_slots(900))
    assert vm.asked is None


def test_failed_when_the_resize_never_ran_then_refused_with_the_reason(vm, client):
    """An engine that stops, or an error for this id, is an answer too."""
    vm.release(vm.applied.with_slots(700))
    client.failed.emit(m.Error(code=ErrorCode.BUDGET, message="No memory.", id="other"))
    assert vm.phase is Phase.PENDING
    client.failed.emit(m.Error(code=ErrorCode.BUDGET, message="No memory.", id="resize-1"))
    assert (vm.phase, vm.note.text) == (Phase.REFUSED, "No memory.")


def test_release_when_another_is_pending_then_the_newest_decides(vm, client):
    """An answer to the older wish moves what holds, not what is shown."""
    vm.release(vm.applied.with_slots(700))
    vm.release(vm.applied.with_slots(800))
    client.apply(512 * 1024, 700, number=1)
    assert (vm.phase, vm.shown.expert_slots, vm.applied.expert_slots) == (Phase.PENDING, 800, 700)
    client.apply(512 * 1024, 800, number=2)
    assert (vm.phase, vm.applied.expert_slots) == (Phase.APPLIED, 800)


def test_yield_while_the_context_is_dragged_then_only_the_context_is_asked_for(vm, client):
    """M-14: letting go of one divider does not take back what was yielded meanwhile."""
    vm.preview(vm.applied.with_kv(300 * 1024))
    client.resize_applied.emit(
        m.ResizeApplied(
            id="loan-9",
            kv_tokens=512 * 1024,
            expert_slots=300,
            kv_bytes=0,
            expert_bytes=0,
            pause_ms=1.0,
        )
    )
    client.tell_status(big_status(slots=300))
    assert (vm.phase, vm.shown.expert_slots) == (Phase.PREVIEW, 300)
    vm.release(vm.shown)
    assert client.asked[-1] == (300 * 1024, None)


def test_status_when_dragging_then_the_preview_stays_within_the_new_bounds(vm, client):
    """A frame of the engine does not take the handle out of the hand."""
    vm.preview(vm.applied.with_kv(300 * 1024))
    client.tell_status(big_status(slots=1100))
    assert vm.phase is Phase.PREVIEW
    assert vm.shown.kv_tokens == 300 * 1024
    assert vm.applied.expert_slots == 1100
    assert vm.shown.is_legal


def test_fields_when_typed_then_asked_for_once_they_rest(vm, client, qtbot):
    """Steps of a spin box are gathered; what is out of bounds is brought back."""
    vm.set_slots(1030)
    vm.set_slots(1040)
    assert client.asked == []
    qtbot.waitUntil(lambda: bool(client.asked), timeout=3000)
    assert client.asked == [(None, 1040)]
    vm.set_kv_tokens(10**9)
    assert vm.shown.is_legal


@pytest.mark.parametrize("index", range(len(PRESETS)))
def test_preset_when_chosen_then_legal_and_recognised(vm, client, index):
    """A preset is shares within the bounds; once it holds, it is the one that is shown."""
    vm.choose_preset(index)
    assert vm.shown.is_legal
    assert vm.preset == index
    assert len(client.asked) == 1


def test_policy_when_chosen_then_sent_once(vm, client):
    """The choice that holds already is not sent."""
    vm.choose_policy(m.MissPolicy.SPLIT)
    vm.choose_policy(m.MissPolicy.CPU_ONLY)
    assert client.policies == [m.MissPolicy.CPU_ONLY]
    client.tell_status(big_status(policy=m.MissPolicy.CPU_ONLY))
    assert vm.policy is m.MissPolicy.CPU_ONLY


@pytest.mark.parametrize("how", ["unloaded", "stopped", "status"])
def test_model_when_gone_then_everything_is_empty(vm, client, how):
    """Unload, crash, or a status without a model: no division, no figures, no map."""
    client.cache_map.emit(cache_map())
    client.decode(stats())
    vm.preview(vm.applied.with_slots(700))
    if how == "status":
        client.tell_status(EMPTY)
    else:
        client.is_running = how != "stopped"
        getattr(client, how).emit(None)
        assert vm.map is None
        assert vm.figures is None
    assert vm.shown is None
    assert vm.phase is Phase.IDLE
    assert vm.forecast.kind == "none"
    vm.release()
    assert client.asked == []


def test_figures_when_decoding_then_as_measured_and_kept_after_it(vm, client):
    """Bytes per token follow from the misses; after the reply the figures stay, marked."""
    client.decode(stats(24.8, 0.63, 0.29))
    routed = 43 * 6 * BIG.record_bytes
    assert vm.figures.read_bytes_per_token == pytest.approx(0.37 * routed)
    assert vm.figures.limit_share is None  # this machine was not measured
    client.stats.emit(m.Stats(interval_s=0.5))
    assert vm.figures.tokens_per_s == 24.8
    assert not vm.figures.is_live


def test_figures_when_the_reply_is_over_then_those_of_the_whole_reply(vm, client, clock):
    """The last frame holds silence; what stays is the reply's own trace."""
    client.decode(stats(24.8))
    client.finished.emit(finished(21.0))
    client.stats.emit(m.Stats(interval_s=0.5, decode_tokens_per_s=3.0, routes=20))
    assert (vm.figures.tokens_per_s, vm.figures.is_live) == (21.0, False)
    assert math.isnan(vm.history.series("speed", 60.0, clock.now + 1)[-1])


def test_figures_when_the_reply_is_shorter_than_a_frame_then_charts_show_it(vm, client, clock):
    """Twenty tokens in a tenth of a second are a point, not nothing."""
    client.finished.emit(finished(200.0))
    assert vm.history.series("speed", 60.0, clock.now)[-1] == 200.0
    assert vm.figures.tokens_per_s == 200.0


def test_device_when_gone_then_it_is_called_what_it_was(vm, client):
    """A crash does not turn copies in memory into transfers over PCIe."""
    client.tell_status(tiny_status())
    assert vm.is_emulated
    client.is_running = False
    client.stopped.emit(None)
    assert vm.is_emulated
    client.is_running = True
    client.tell_status(big_status())
    assert not vm.is_emulated


def test_forecast_when_nothing_is_known_then_empty_with_the_reason(vm, client):
    """First no reply, then no measured rates: no number, and what to do about it."""
    vm.preview(vm.applied.with_slots(900))
    assert (vm.forecast.kind, vm.forecast.speed) == ("none", None)
    assert "send a message" in vm.forecast.reason
    client.decode(stats())
    assert vm.forecast.kind == "none"
    assert "profiler" in vm.forecast.reason
    assert vm.forecast.hit_then <= vm.forecast.hit_now


def test_forecast_when_rates_are_known_then_a_range_and_later_its_error(
    vm, client, clock, tmp_path
):
    """Predicted while it moves; after applying, measured with the error, for ten seconds."""
    (tmp_path / "a.json").write_bytes(profile_bytes())
    vm.reload_profiles()
    client.decode(stats())
    vm.preview(vm.applied.with_slots(1200))
    forecast = vm.forecast
    assert forecast.kind == "predicted"
    assert 24.8 <= forecast.speed.low <= forecast.speed.middle <= forecast.speed.high
    vm.release(vm.shown)
    client.apply(vm.shown.kv_tokens, vm.shown.expert_slots)
    for _ in range(3):
        clock.now += 0.5
        client.stats.emit(stats(forecast.speed.middle * 0.97, 0.66, 0.26))
    assert vm.forecast.kind == "measured"
    assert vm.forecast.error == pytest.approx(-0.03)
    clock.now += 11
    client.decode(stats())
    assert vm.forecast.kind == "none"
    assert "Move a divider" in vm.forecast.reason
    assert "−3 % off" in vm.forecast.reason  # the error stays to be read
    for _ in range(30):  # another speed much later is no error of that forecast
        clock.now += 0.5
        client.decode(stats(5.0))
    assert "−3 % off" in vm.forecast.reason


def test_history_when_frames_come_then_series_and_events(vm, client, clock):
    """Charts get means per bin, gaps where nothing ran, and a mark for a resize."""
    for _ in range(20):
        clock.now += 0.5
        client.stats.emit(stats())
    series = vm.history.series("speed", 60.0, clock.now)
    assert len(series) == 120
    assert series[-1] == pytest.approx(24.8)
    assert math.isnan(series[0])
    assert vm.history.series("mem_kv", 60.0, clock.now)[-1] == vm.applied.kv_bytes
    vm.release(vm.applied.with_kv(300 * 1024))
    client.apply(300 * 1024, vm.shown.expert_slots)
    (at, event) = vm.history.events(60.0, clock.now)[0]
    assert at == pytest.approx(1.0)
    assert (event.kind, event.text) == ("kv_down", "KV shrank")


def test_history_when_silent_then_held_for_a_moment_and_then_a_gap():
    """Frames come twice a second and bins are shorter: the line must not break between them."""
    history = History()
    history.add(100.2, {"x": 5.0})
    assert history.series("x", 60.0, 101.9)[-1] == 5.0
    assert math.isnan(history.series("x", 60.0, 110.0)[-1])
    history.add(102.0, {"x": math.nan})
    assert math.isnan(history.series("x", 60.0, 102.0)[-1])


def test_history_when_old_then_forgotten():
    """Rings keep their span and no more; events outside of it are not shown."""
    history = History()
    history.mark(Event(10.0, "kv_up", "KV grew"))
    for second in range(0, 9000, 3):
        history.add(float(second), {"x": 1.0})
    for span in SPANS:
        assert len(history.series("x", span, 9000.0)) <= 300
        assert len(history._rings[span]._bins) <= 302
    assert history.events(60.0, 9000.0) == []


def test_tiny_when_everything_fits_then_bounds_still_hold(client, tmp_path, clock):
    """The built-in model: all experts may lie on the device."""
    vm = PerformanceViewModel(client, tmp_path, clock)
    client.tell_status(tiny_status())
    vm.set_slots(256)
    assert vm.shown.expert_slots == 256
    assert vm.shown.is_legal


def _fields(struct):
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def test_custom_when_a_preset_was_tried_then_the_own_division_comes_back(client, clock, tmp_path):
    """Case FreeToken#255: per model, over a restart of the app, made legal under new bounds."""
    settings = SettingsStore(tmp_path / "settings.json")

    def fresh():
        made = PerformanceViewModel(client, tmp_path, clock, settings)
        client.tell_status(big_status())
        return made

    vm = fresh()
    vm.choose_preset(CUSTOM)
    assert client.asked == []  # there is none yet
    vm.release(vm.applied.with_slots(900))
    client.apply(vm.shown.kv_tokens, 900)
    own = (vm.applied.kv_tokens, 900)
    vm.choose_preset(0)
    client.apply(*client.asked[-1])
    assert vm.preset == 0
    for one in (vm, fresh()):
        one.choose_preset(CUSTOM)
        asked = client.asked[-1]
        assert (asked[0] or one.applied.kv_tokens, asked[1]) == own
    client.tell_status(tiny_status())
    assert (
        vm._presets.wanted(CUSTOM, vm.applied, vm.model) is None
    )  # another model, none of its own
    vm._presets._own["tiny"] = (10**9, 10**9)
    assert vm._presets.wanted(CUSTOM, vm.applied, vm.model).is_legal


def test_custom_when_memory_was_yielded_then_not_taken_for_a_choice(client, clock, tmp_path):
    """What was given away for a while is nobody's own division."""
    vm = PerformanceViewModel(client, tmp_path, clock, SettingsStore(tmp_path / "settings.json"))
    client.tell_status(big_status())
    client.resize_applied.emit(
        m.ResizeApplied(
            id="loan-7", kv_tokens=vm.applied.kv_tokens, expert_slots=300, kv_bytes=0,
            expert_bytes=0, pause_ms=1.0,
        )
    )  # fmt: skip
    assert vm.applied.expert_slots == 300
    assert vm._presets.wanted(CUSTOM, vm.applied, vm.model) is None


@pytest.mark.parametrize(
    ("hit", "fill", "copied"), [(0.63, 0.29, 0.29 / 0.37), (0.5, 0.0, 0.0), (1.0, 0.0, None)]
)
def test_figures_then_share_of_misses_and_both_rates_as_they_really_were(
    vm, client, hit, fill, copied
):
    """The automatic policy has no plan to quote: what happened is what is shown."""
    client.decode(stats(24.8, hit, fill, fill_gbps=24.9, cpu_gbps=6.9))
    figures = vm.figures
    assert figures.copied_share == (pytest.approx(copied) if copied is not None else None)
    assert (figures.fill_gbps, figures.cpu_gbps) == (24.9, 6.9)


def test_reply_over_then_the_page_says_what_its_trace_in_the_chat_says(vm, client):
    """One reply, two places, the same figures: shares, both rates, speed."""
    client.decode(stats(99.0, 0.9, 0.05))
    trace = m.Trace(
        decode_s=2.0,
        decode_tokens_per_s=21.5,
        hit_share=0.6,
        fill_share=0.3,
        cpu_share=0.1,
        fill_gbps=12.3,
        cpu_gbps=31.0,
    )
    usage = m.Usage(reply_tokens=40)
    client.finished.emit(
        m.Finished(id="reply-1", reason=m.FinishReason.STOP, usage=usage, trace=trace)
    )
    figures = vm.figures
    names = ("hit_share", "fill_share", "cpu_share", "fill_gbps", "cpu_gbps")
    assert [getattr(figures, name) for name in names] == [getattr(trace, name) for name in names]
    assert figures.tokens_per_s == trace.decode_tokens_per_s
    assert not figures.is_live


def grow(client, kv, slots, taken):
    client.resize_applied.emit(
        m.ResizeApplied(
            id="", kv_tokens=kv, expert_slots=slots, kv_bytes=0, expert_bytes=0, pause_ms=1.0,
            taken_slots=taken,
        )
    )  # fmt: skip
    client.tell_status(big_status(kv, slots))


def test_context_that_grew_by_itself_then_shown_and_said_but_nobodys_choice(
    client, clock, tmp_path
):
    """The bar follows the engine and says why; Undo and the person's own division are others."""
    vm = PerformanceViewModel(client, tmp_path, clock, SettingsStore(tmp_path / "settings.json"))
    client.tell_status(big_status())
    grow(client, 524_288 + 4096, 1021, taken=3)
    assert (vm.applied.kv_tokens, vm.shown.expert_slots) == (528_384, 1021)
    assert vm.note.text == "A chat needed more context: it grew to 516K tokens."
    assert not vm.note.can_undo
    assert [event.kind for _, event in vm.history.events(60.0, vm.now())] == ["kv_up"]
    vm.undo()
    assert client.asked == []
    assert vm._presets.wanted(CUSTOM, vm.applied, vm.model) is None


@pytest.mark.parametrize("part", ["kv", "experts"])
def test_context_that_grew_while_a_divider_is_dragged_then_only_the_other_part_is_asked_for(
    vm, client, part
):
    """Letting go must not take from a long chat what it has just been given."""
    kv, slots = vm.applied.kv_tokens, vm.applied.expert_slots
    vm.preview(vm.applied.with_kv(kv - 65_536) if part == "kv" else vm.applied.with_slots(900))
    grow(client, kv + 4096, slots - 3, taken=3)
    vm.release(vm.shown)
    assert client.asked[-1] == ((kv - 65_536, None) if part == "kv" else (None, 900))
