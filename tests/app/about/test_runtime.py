"""The card of the engine's libraries: what it offers, starts, shows and says."""

from pathlib import Path

import msgspec
import pytest

from app.services.runtime_build import (
    BuildFacts,
    LockFile,
    fitting_locks,
    read_build,
    runtime_in_use,
)
from app.services.settings import SettingsStore
from app.viewmodels.runtime import RuntimeViewModel
from app.views.runtime import RuntimeCard, RuntimeRow, runtime_card
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode
from engine.protocol.places import DataRoot
from engine.protocol.runtime_lock import MANIFEST, RuntimeLock, Wheel, this_platform, this_python
from tests.app.profiler.stubs import StubJobs
from tests.app.walk import clipped, controls, settle, spoken_name
from tests.conftest import REPOSITORY

INDEXES = {"": "https://index.invalid/simple"}


def lock(build: str, size: int) -> RuntimeLock:
    wheel = Wheel(
        name="torch", version="2.0", file=f"torch-2.0+{build}-py3-none-any.whl", size=size,
        unpacked=3 * size, sha256="ab" * 32,
    )  # fmt: skip
    return RuntimeLock(platform=this_platform(), python=this_python(), build=build, wheels=(wheel,))


class Parts:
    """The view model between stubs."""

    def __init__(self, folder: Path, bundle="shell", cuda=False, builds=("cpu", "cuda")):
        self.root = DataRoot(folder / "data")
        self.jobs = StubJobs()
        self.settings = SettingsStore(folder / "settings.json")
        sizes = {"cpu": 224_000_000, "cuda": 2_762_000_000}
        self.locks = [LockFile(folder / f"{b}.json", lock(b, sizes[b])) for b in builds]
        build = BuildFacts(bundle=bundle, indexes=INDEXES)
        self.vm = RuntimeViewModel(self.jobs, self.settings, self.root, build, self.locks, cuda)

    def put(self, entry: RuntimeLock) -> Path:
        """Install a runtime."""
        folder = self.root.runtime / entry.key
        folder.mkdir(parents=True)
        (folder / MANIFEST).write_bytes(msgspec.json.encode(entry))
        return folder


@pytest.fixture
def parts(qapp, looks, tmp_path):
    return Parts(tmp_path)


def test_shell_when_nothing_is_installed_then_it_offers_what_fits(parts, tmp_path):
    """CUDA where there is a driver, else the CPU build."""
    assert parts.vm.need == "missing"
    assert parts.vm.chosen == "cpu"
    assert Parts(tmp_path / "b", cuda=True).vm.chosen == "cuda"
    assert Parts(tmp_path / "c", cuda=True, builds=("cpu",)).vm.chosen == "cpu"
    assert Parts(tmp_path / "d", builds=()).vm.chosen is None


def test_install_when_clicked_then_one_job_with_lock_index_and_mirror(qtbot, parts):
    card = RuntimeCard(parts.vm)
    qtbot.addWidget(card)
    card.mirror.setText(" https://mirror.invalid/simple ")
    card.mirror.editingFinished.emit()
    card.install.click()
    card.install.click()
    (job,) = parts.jobs.jobs()
    assert job.job == "runtime"
    assert job.spec["lock"] == str(parts.locks[0].path)
    assert job.spec["channels"] == INDEXES
    assert job.spec["mirror"] == "https://mirror.invalid/simple"
    assert job.spec["repair"] is False


def test_other_build_when_chosen_then_that_one_is_installed(qtbot, parts):
    card = RuntimeCard(parts.vm)
    qtbot.addWidget(card)
    assert "224" in card._size.text()
    card.builds.segments[1].click()
    assert "2.8 GB" in card._size.text()
    card.install.click()
    assert parts.jobs.jobs()[0].spec["lock"] == str(parts.locks[1].path)


def test_failure_when_told_then_sentence_hint_and_a_way_on(qtbot, parts):
    """Network lost, disk full, wrong hash: the job's own words, Resume and Discard."""
    card = RuntimeCard(parts.vm)
    qtbot.addWidget(card)
    card.install.click()
    error = m.Error(
        code=ErrorCode.DISK_FULL, message="12.0 GiB are needed, 3.0 GiB are free.",
        hint="Free 9.0 GiB there.",
    )  # fmt: skip
    parts.jobs.end(parts.vm.job.id, error)
    assert parts.vm.problem == "12.0 GiB are needed, 3.0 GiB are free. Free 9.0 GiB there."
    assert not card.resume.isHidden()
    card.resume.click()
    assert parts.vm.problem == ""
    assert parts.jobs.resumed == [parts.vm.job.id]


def test_discard_when_clicked_then_downloads_are_removed(qtbot, parts):
    card = RuntimeCard(parts.vm)
    qtbot.addWidget(card)
    card.install.click()
    cancelled = m.Error(code=ErrorCode.CANCELLED, message="Cancelled.")
    parts.jobs.end(parts.vm.job.id, cancelled)
    assert parts.vm.problem == ""
    card.discard.click()
    assert parts.vm.job is None
    assert parts.jobs.jobs()[-1].spec["act"] == "clean"


def test_installed_when_done_then_told_and_the_same_is_offered_as_repair(qtbot, parts):
    """A repair replaces what the engine uses, so it must let go first."""
    card = RuntimeCard(parts.vm)
    qtbot.addWidget(card)
    card.install.click()
    parts.put(parts.locks[0].lock)
    with qtbot.waitSignal(parts.vm.installed):
        parts.jobs.end(parts.vm.job.id, m.JobDone(job="runtime", result={}))
    assert parts.vm.need == "installed"
    assert parts.vm.is_current
    assert card.install.text() == "Repair"
    with qtbot.waitSignal(parts.vm.stop_wanted):
        card.install.click()
    assert parts.vm.job.spec["repair"] is True


def older(entry: RuntimeLock) -> RuntimeLock:
    """The list of an earlier version."""
    (wheel,) = entry.wheels
    return msgspec.structs.replace(
        entry, wheels=(msgspec.structs.replace(wheel, sha256="cd" * 32),)
    )


@pytest.mark.parametrize("build", ["cpu", "cuda"])
def test_runtime_when_the_program_was_updated_then_newer_ones_of_its_kind_are_offered(
    qtbot, tmp_path, looks, build
):
    """What is there goes on working; the update is one click, and then nothing is said."""
    before = Parts(tmp_path, cuda=True)
    before.put(older(next(e.lock for e in before.locks if e.lock.build == build)))
    parts = Parts(tmp_path, cuda=True)
    card = RuntimeCard(parts.vm)
    qtbot.addWidget(card)
    assert parts.vm.need == "outdated"
    assert parts.vm.chosen == build
    assert card.install.text() == "Update"
    assert "another version" in card._what.text()
    card.install.click()
    (job,) = parts.jobs.jobs()
    assert job.spec["key"] == parts.vm.offer.key
    assert job.spec["repair"] is False
    parts.put(parts.vm.offer)
    parts.jobs.end(parts.vm.job.id, m.JobDone(job="runtime", result={}))
    assert parts.vm.need == "installed"
    assert card.install.text() == "Repair"
    assert "another version" not in card._what.text()


def test_runtime_when_only_a_file_could_bring_it_then_it_is_not_outdated(qtbot, tmp_path, looks):
    """Nothing of its kind is listed: nothing newer can be offered."""
    parts = Parts(tmp_path, builds=("cuda",))
    parts.put(lock("cpu", 224_000_000))
    assert parts.vm.need == "installed"


@pytest.mark.parametrize(
    ("bundle", "build", "is_listed", "is_used"),
    [
        ("full", "cpu", False, False),
        ("full", "cpu", True, True),
        ("full", "cuda", False, True),
        ("shell", "cpu", False, True),
    ],
)
def test_runtime_in_use_when_a_full_build_is_newer_then_its_own(
    qtbot, tmp_path, looks, bundle, build, is_listed, is_used
):
    """Its CPU libraries came with this version; a card still needs the installed ones."""
    parts = Parts(tmp_path, bundle=bundle)
    entry = next(e.lock for e in parts.locks if e.lock.build == build)
    folder = parts.put(entry if is_listed else older(entry))
    found = runtime_in_use(parts.root.runtime, bundle, parts.locks)
    assert found == (folder if is_used else None)
    assert (parts.vm.present is not None) is is_used


def test_start_when_an_old_runtime_is_left_then_it_is_removed(qtbot, tmp_path, looks):
    """Nobody uses it any more once the app has started anew."""
    parts = Parts(tmp_path)
    for entry in parts.locks:
        parts.put(entry.lock)
    qtbot.waitUntil(lambda: bool(parts.jobs.jobs()))
    assert parts.jobs.jobs()[0].spec["act"] == "clean"
    assert parts.vm.job is None


def test_bundle_when_chosen_then_installed_from_the_file(parts, tmp_path):
    parts.vm.install_bundle(tmp_path / "x.ftruntime")
    assert parts.vm.job.spec["bundle"] == str(tmp_path / "x.ftruntime")
    assert "lock" not in parts.vm.job.spec


@pytest.mark.parametrize("state", ["offer", "busy", "failed", "installed", "outdated", "none"])
@pytest.mark.parametrize("width", [520, 760])
def test_card_when_shown_then_nothing_is_clipped_and_all_is_named(
    qtbot, tmp_path, looks, state, width
):
    card = card_in(tmp_path, state)
    qtbot.addWidget(card)
    card.resize(width, 300)
    card.show()
    settle()
    assert not clipped(card)
    assert all(spoken_name(control) for control in controls(card))


def card_in(folder: Path, state: str):
    """Return the card in one of its states; also for pictures."""
    parts = Parts(folder / state, builds=() if state == "none" else ("cpu", "cuda"))
    card = runtime_card(parts.vm)
    card.parts = parts
    if state == "installed":
        parts.put(parts.locks[0].lock)
    if state == "outdated":
        parts.put(older(parts.locks[0].lock))
    if state in ("busy", "failed"):
        parts.vm.install()
        frame = m.Progress(
            id="runtime", stage="download", done_bytes=90_000_000, total_bytes=224_000_000
        )
        parts.jobs.update(parts.vm.job.id, progress=frame, speed_bytes_s=11e6, eta_s=12.0)
    if state == "failed":
        message = "torch-2.13.0 came damaged twice: its bytes are not those the hub lists."
        error = m.Error(code=ErrorCode.CORRUPT_CHECKPOINT, message=message, hint="Try again later.")
        parts.jobs.end(parts.vm.job.id, error)
    parts.vm.changed.emit()
    return card


def test_row_when_made_then_it_holds_the_card(qtbot, parts):
    row = RuntimeRow(parts.vm)
    qtbot.addWidget(row)
    assert row.contains("runtime")
    assert isinstance(row.card, RuntimeCard)


def test_locks_of_the_repository_when_read_then_each_is_sound():
    """Committed lists: right names, one torch, no address of any index."""
    paths = sorted((REPOSITORY / "resources" / "runtime").glob("*.json"))
    assert paths
    for path in paths:
        text = path.read_text("utf-8")
        found = msgspec.json.decode(text, type=RuntimeLock)
        assert path.stem == f"{found.platform}-{found.python}-{found.build}"
        names = [wheel.name.lower() for wheel in found.wheels]
        assert {"torch", "safetensors", "tokenizers", "jinja2", "numpy"} <= set(names)
        assert len(set(names)) == len(names)
        assert ("triton" in names) == (found.build == "cuda")
        assert "//" not in text
        tags = {found.python, "abi3", "none"}
        assert all(tags & set(w.file.removesuffix(".whl").split("-")) for w in found.wheels)


def test_checkout_when_asked_for_its_stamp_then_it_has_none(tmp_path):
    assert read_build() == BuildFacts()
    (tmp_path / "build.json").write_text('{"bundle": "shell", "new": 1, "indexes": {"": "x"}}')
    assert read_build(tmp_path).bundle == "shell"
    assert isinstance(fitting_locks(), tuple)
