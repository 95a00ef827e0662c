"""The installation of the engine's libraries from an index on loopback that fails in every way."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from engine.jobs import hub_file, runtime, runtime_report, runtime_selftest
from engine.jobs.runtime_check import check_engine
from engine.protocol.errors import (
    Cancelled,
    CorruptCheckpoint,
    DiskFull,
    FileAccess,
    InvalidRequest,
    NetworkError,
)
from engine.protocol.messages import JobDone, Progress
from engine.protocol.places import DataRoot
from engine.protocol.runtime_lock import installed_lock, newest_runtime
from tests.e2e.engine_process import engine
from tests.support.mock_hub import BLOCK, Fault
from tests.support.mock_index import (
    MockIndex,
    make_lock,
    serve_index,
    write_bundle,
    write_lock,
    write_wheel,
)

NEVER = lambda: False  # noqa: E731
BIG = "ftbig"  # more than one block, so that it can be cut


class Shop:
    """An index with two wheels, their lock, and an empty data root."""

    def __init__(self, folder: Path, index: MockIndex) -> None:
        self.folder, self.index = folder, index
        self.root = DataRoot(folder / "dätä 語")
        self.big = big = os.urandom(5 * BLOCK)
        self.wheels = (
            write_wheel(index.folder, BIG, {f"{BIG}/__init__.py": b"", f"{BIG}/b.bin": big}),
            write_wheel(
                index.folder,
                "ftsmall",
                {
                    "ftsmall.py": b"VALUE = 7\n",
                    "ftsmall-1.0.data/purelib/ftextra.py": b"VALUE = 8\n",
                    "ftsmall-1.0.data/scripts/run": b"#!python\n",
                },
            ),
        )
        self.lock = make_lock(*self.wheels)
        self.lock_path = write_lock(folder / "lock.json", self.lock)

    @property
    def target(self) -> Path:
        return self.root.runtime / self.lock.key

    @property
    def downloads(self) -> Path:
        return self.root.caches / "runtime" / self.lock.key

    def spec(self, **more):
        base = {"id": "r", "home": str(self.root.root), "lock": str(self.lock_path)}
        channels = {"": f"{self.index.url}/simple"}
        return {**base, "channels": channels, "hub_proxy": "direct", **more}

    def install(self, emit=lambda _: None, cancelled=NEVER, **more):
        return runtime.run(self.spec(**more), emit, cancelled)

    def left_behind(self) -> list[str]:
        """Return what lies in the runtime folder beside finished runtimes."""
        return [p.name for p in self.root.runtime.iterdir() if installed_lock(p) is None]


@pytest.fixture
def shop(tmp_path):
    (tmp_path / "index").mkdir()
    with serve_index(MockIndex(tmp_path / "index")) as index:
        yield Shop(tmp_path, index)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Frames for every block, no waiting between tries, and an engine that always answers."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(runtime_report, "REPORT_S", 0.0)
    monkeypatch.setattr(hub_file, "CHUNK_BYTES", BLOCK)
    monkeypatch.setattr(
        runtime, "_HOOKS", lambda *given: hub_file.Hooks(*given, pause=lambda _seconds: None)
    )
    monkeypatch.setattr(runtime, "check_engine", lambda *_: None)


def test_install_when_all_is_well_then_folder_is_whole_and_downloads_are_gone(shop):
    """Root of the wheel and its libraries lie where an interpreter imports from; no scripts."""
    frames = []
    result = shop.install(frames.append)
    assert result["path"] == str(shop.target)
    assert newest_runtime(shop.root.runtime) == shop.target
    assert (shop.target / "ftsmall.py").read_bytes() == b"VALUE = 7\n"
    assert (shop.target / "ftextra.py").exists()
    assert not list(shop.target.rglob("run"))
    assert not shop.downloads.exists()
    assert shop.left_behind() == [runtime.LOCK_NAME]
    stages = list(dict.fromkeys(frame.stage for frame in frames if isinstance(frame, Progress)))
    assert stages == ["check", "download", "unpack", "try"]
    last = [frame for frame in frames if frame.stage == "download"][-1]
    assert last.done_bytes <= last.total_bytes == shop.lock.download_bytes


@pytest.mark.parametrize("is_html", [False, True])
def test_index_when_json_or_page_then_both_are_read(shop, is_html):
    """Mirrors speak the older form."""
    shop.index.is_html = is_html
    shop.install()
    assert installed_lock(shop.target) == shop.lock


def test_network_when_lost_in_a_file_then_the_rest_is_fetched(shop):
    """The connection breaks twice; no byte comes twice."""
    file = shop.wheels[0].file
    shop.index.faults[file] = Fault(cut_at=2 * BLOCK, cuts=2)
    frames = []
    shop.install(frames.append)
    assert "retry" in {frame.stage for frame in frames}
    assert installed_lock(shop.target) == shop.lock


def test_network_when_it_stays_away_then_it_says_so_and_the_next_run_resumes(shop):
    """What was fetched is kept; only the rest is asked for."""
    file = shop.wheels[0].file
    shop.index.faults[file] = Fault(status=503, statuses=100)
    with pytest.raises(NetworkError, match="busy"):
        shop.install()
    assert newest_runtime(shop.root.runtime) is None
    kept = BLOCK + 17
    part = shop.downloads / (file + hub_file.PART)
    part.write_bytes((shop.index.folder / file).read_bytes()[:kept])
    shop.index.faults.clear()
    shop.install()
    assert shop.index.served[file] == shop.wheels[0].size - kept
    assert installed_lock(shop.target) == shop.lock


def test_bytes_when_wrong_twice_then_nothing_is_unpacked(shop):
    """A mirror that lies is refused by the hash; the next run fetches that file again."""
    file = shop.wheels[0].file
    shop.index.faults[file] = Fault(damage=2)
    with pytest.raises(CorruptCheckpoint, match="damaged twice"):
        shop.install()
    assert newest_runtime(shop.root.runtime) is None
    assert not (shop.downloads / file).exists()
    shop.install()
    assert installed_lock(shop.target) == shop.lock


def test_disk_when_too_small_then_both_figures_are_named_before_the_first_byte(shop, monkeypatch):
    """Download and unpacked libraries count."""
    monkeypatch.setattr("engine.checkpoint.files.free_bytes", lambda _: 1024)
    with pytest.raises(DiskFull, match=r"are needed on the disk .* 1.0 KiB are free"):
        shop.install()
    assert not shop.index.requests


def test_disk_when_it_fills_while_unpacking_then_downloads_stay_and_the_draft_goes(
    shop, monkeypatch
):
    """P-14: the next try begins with what is there, and nothing piles up."""

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("engine.jobs.runtime_unpack.shutil.copyfileobj", full)
        with pytest.raises(DiskFull, match="is full"):
            shop.install()
    assert shop.left_behind() == [runtime.LOCK_NAME]
    asked = len(shop.index.requests)
    shop.install()
    assert len(shop.index.requests) == asked
    assert installed_lock(shop.target) == shop.lock


def test_disk_when_it_fills_while_fetching_then_what_came_stays(shop, monkeypatch):
    """The sentence names the disk; the next try asks only for the rest."""
    file, room = shop.wheels[0].file, 2 * BLOCK

    def write(out, data):
        if out.tell() >= room:
            raise OSError(28, "No space left on device")
        out.write(data)

    with monkeypatch.context() as patch:
        patch.setattr(hub_file, "_write", write)
        with pytest.raises(DiskFull, match="full"):
            shop.install()
    assert newest_runtime(shop.root.runtime) is None
    kept = (shop.downloads / (file + hub_file.PART)).stat().st_size
    assert kept >= room
    frames = []
    shop.install(frames.append)
    assert installed_lock(shop.target) == shop.lock
    counts = [frame.done_bytes for frame in frames if frame.stage == "download"]
    assert counts[0] == kept
    assert counts == sorted(counts)  # nothing was thrown away


@pytest.mark.parametrize("step", [1, 2])
def test_rename_when_the_power_goes_then_a_name_is_whole_or_none(shop, monkeypatch, step):
    """A repair replaces a folder by two renames; the program is gone before either."""
    shop.install()
    real, calls = runtime.rename, []

    def dies(source, target):
        calls.append(source)
        if len(calls) == step:
            raise SystemExit
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(runtime, "rename", dies)
        with pytest.raises(SystemExit):
            shop.install(repair=True)
    found = newest_runtime(shop.root.runtime)
    assert found == (shop.target if step == 1 else None)
    shop.install()
    assert (shop.target / "ftsmall.py").read_bytes() == b"VALUE = 7\n"
    assert newest_runtime(shop.root.runtime) == shop.target


def test_engine_when_it_does_not_run_with_it_then_the_old_one_stays(shop, monkeypatch):
    """The present runtime serves until the new one has passed."""
    shop.install()
    old = shop.target
    wheel = write_wheel(shop.index.folder, "ftnew", {"ftnew.py": b"1\n"})
    newer = write_lock(shop.folder / "newer.json", make_lock(*shop.wheels, wheel))

    def fails(*_):
        raise CorruptCheckpoint("The engine does not run with the new runtime.")

    monkeypatch.setattr(runtime, "check_engine", fails)
    with pytest.raises(CorruptCheckpoint):
        shop.install(lock=str(newer))
    assert newest_runtime(shop.root.runtime) == old
    assert shop.left_behind() == [runtime.LOCK_NAME]


def test_newer_lock_when_installed_then_it_is_taken_and_clean_removes_the_old_one(shop):
    """A running engine may still use the old one, so that goes later."""
    shop.install()
    old = shop.target
    wheel = write_wheel(shop.index.folder, "ftnew", {"ftnew.py": b"1\n"})
    newer = write_lock(shop.folder / "newer.json", make_lock(*shop.wheels, wheel))
    os.utime(old / "runtime.json", (1, 1))
    made = Path(shop.install(lock=str(newer))["path"])
    assert newest_runtime(shop.root.runtime) == made
    assert old.exists()
    (shop.root.caches / "runtime" / "kept").mkdir(parents=True)
    (shop.root.caches / "runtime" / "gone").mkdir()
    shop.install(act="clean", keep="kept")
    assert not old.exists()
    assert newest_runtime(shop.root.runtime) == made
    assert [p.name for p in (shop.root.caches / "runtime").iterdir()] == ["kept"]


def test_repair_when_files_are_damaged_then_they_are_replaced(shop):
    """An ordinary run only looks whether the engine answers."""
    shop.install()
    (shop.target / "ftsmall.py").unlink()
    shop.install()
    assert not (shop.target / "ftsmall.py").exists()
    shop.install(repair=True)
    assert (shop.target / "ftsmall.py").exists()
    assert shop.left_behind() == [runtime.LOCK_NAME]


def test_cancel_when_asked_half_way_then_downloads_are_kept(shop):
    """The person may go on later."""
    stop = threading.Event()
    file = shop.wheels[0].file

    def emit(frame):
        if frame.stage == "download" and frame.done_bytes >= 2 * BLOCK:
            stop.set()

    with pytest.raises(Cancelled):
        shop.install(emit, stop.is_set)
    assert (shop.downloads / (file + hub_file.PART)).stat().st_size >= 2 * BLOCK
    assert newest_runtime(shop.root.runtime) is None


def test_second_installation_when_one_runs_then_it_is_refused(shop):
    """Two windows, one folder."""
    seen = []

    def emit(frame):
        if frame.stage == "unpack" and not seen:
            seen.append(True)
            with pytest.raises(FileAccess, match="already"):
                shop.install()

    shop.install(emit)
    assert seen


def test_lock_when_for_another_python_then_it_is_refused(shop):
    """The frozen interpreter could not load a single library of it."""
    other = msgspec.structs.replace(shop.lock, python="cp299")
    path = write_lock(shop.folder / "other.json", other)
    with pytest.raises(InvalidRequest, match="cp299"):
        shop.install(lock=str(path))


def test_index_when_there_is_none_for_a_channel_then_the_way_out_is_named(shop):
    """Nothing is fetched from an address that nobody gave."""
    with pytest.raises(InvalidRequest, match="No package index") as caught:
        shop.install(channels={})
    assert "offline bundle" in caught.value.hint


def test_mirror_when_set_then_every_request_goes_there(shop):
    """D-13: no other host hears of it."""
    mirror = f"{shop.index.url}/simple/"
    shop.install(channels={"": "http://127.0.0.1:9/simple"}, mirror=mirror)
    assert installed_lock(shop.target) == shop.lock


@pytest.mark.parametrize("page", [b"<html>Please log in</html>", b'{"files": 3}'])
def test_index_when_the_answer_is_none_of_an_index_then_it_says_so(shop, page):
    """A hotel's login page, or any other site."""
    shop.index.page = page
    with pytest.raises(NetworkError, match="as a package index does"):
        shop.install()


def test_index_when_it_lacks_the_file_then_it_is_named(shop):
    """A mirror that is behind."""
    (shop.index.folder / shop.wheels[1].file).unlink()
    with pytest.raises(NetworkError, match="does not have ftsmall"):
        shop.install()


def test_bundle_when_given_then_no_request_is_made(shop):
    """For machines without a network."""
    bundle = write_bundle(shop.folder / "x.ftruntime", shop.lock, shop.index.folder)
    shop.install(bundle=str(bundle), lock="")
    assert installed_lock(shop.target) == shop.lock
    assert not shop.index.requests


@pytest.mark.parametrize("cut", [40, -40])
def test_bundle_when_damaged_then_it_is_refused_with_what_to_do(shop, cut):
    """Cut while it was copied."""
    bundle = write_bundle(shop.folder / "x.ftruntime", shop.lock, shop.index.folder)
    data = bundle.read_bytes()
    bundle.write_bytes(data[:cut])
    with pytest.raises(InvalidRequest) as caught:
        shop.install(bundle=str(bundle), lock="")
    assert "again" in caught.value.hint


def test_bundle_when_a_wheel_is_not_the_locked_one_then_it_is_refused(shop):
    """The archive is sound, its content is not."""
    bundle = write_bundle(shop.folder / "x.ftruntime", shop.lock, shop.index.folder)
    write_wheel(shop.index.folder, BIG, {"evil.py": b""})
    write_bundle(bundle, shop.lock, shop.index.folder)
    with pytest.raises(CorruptCheckpoint, match="damaged or missing"):
        shop.install(bundle=str(bundle), lock="")
    assert newest_runtime(shop.root.runtime) is None


@pytest.mark.parametrize("is_bundle", [False, True])
def test_wheel_when_it_was_damaged_after_it_came_then_it_comes_again(shop, is_bundle):
    """A killed run has left it; its name and size are right, its bytes are not any more."""
    bundle = write_bundle(shop.folder / "x.ftruntime", shop.lock, shop.index.folder)
    file = shop.wheels[0].file
    data = bytearray((shop.index.folder / file).read_bytes())
    data[BLOCK] ^= 1
    shop.downloads.mkdir(parents=True)
    (shop.downloads / file).write_bytes(data)
    shop.install(bundle=str(bundle) if is_bundle else "")
    assert installed_lock(shop.target) == shop.lock
    assert (shop.target / BIG / "b.bin").read_bytes() == shop.big


@pytest.mark.parametrize("place", ["../evil.py", "/evil.py", "a/../../evil.py", "c:evil.py"])
def test_wheel_when_a_path_leaves_the_folder_then_it_is_refused(shop, place):
    """Right hash, wrong intent: still nothing is written elsewhere."""
    wheel = write_wheel(shop.index.folder, "ftevil", {place: b"1"})
    path = write_lock(shop.folder / "evil.json", make_lock(wheel))
    with pytest.raises(CorruptCheckpoint, match="unsafe path"):
        shop.install(lock=str(path))
    assert not list(shop.folder.rglob("evil.py"))


@pytest.mark.parametrize("problem", ["", "it cannot compile: ptxas: Permission denied"])
def test_selftest_when_triton_cannot_compile_then_it_passes_and_says_so(monkeypatch, problem):
    """Prompts then run on plain torch, more slowly: no reason to refuse a runtime."""
    monkeypatch.setattr("kernels.triton.obstacle", lambda: problem)
    assert runtime_selftest.run({}, lambda _: None, NEVER)["triton"] == problem


class TestRealEngine:
    """The engine of this checkout, started for real."""

    def test_check_when_libraries_are_fine_then_it_passes(self, tmp_path):
        """Its own torch; the folder adds nothing."""
        runtime_folder = tmp_path / "runtime"
        runtime_folder.mkdir()
        check_engine(runtime_folder, tmp_path / "home", lambda: None)

    def test_check_when_torch_cannot_be_loaded_then_its_last_words_are_told(self, tmp_path):
        """P-05: a library that is missing on this machine is named."""
        (tmp_path / "torch").mkdir()
        (tmp_path / "torch" / "__init__.py").write_text(
            "raise ImportError('libcudart.so.13: cannot open shared object file')"
        )
        with pytest.raises(CorruptCheckpoint, match=r"It said: A library .* libcudart\.so\.13"):
            check_engine(tmp_path, tmp_path / "home", lambda: None)

    def test_check_when_the_engine_hangs_then_it_ends_with_a_sentence(self, tmp_path):
        """A scanner that holds a file for ever must not hold the app."""
        program = (sys.executable, "-c", "print('nothing to say')")
        hang = (sys.executable, "-c", "import threading; threading.Event().wait()")
        with pytest.raises(CorruptCheckpoint, match="did not answer within"):
            check_engine(tmp_path, tmp_path, lambda: None, hang, limit_s=0.0)
        with pytest.raises(CorruptCheckpoint, match="nothing to say"):
            check_engine(tmp_path, tmp_path, lambda: None, program)

    @pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is POSIX")
    def test_job_when_killed_then_the_next_one_finishes_it(self, shop):
        """Shows 5: killed in the middle of the download; a second process takes it up."""
        file = shop.wheels[0].file
        gate, reached = threading.Event(), threading.Event()

        def hold(offset):
            if offset >= 3 * BLOCK:
                reached.set()
                gate.wait(30)

        shop.index.faults[file] = Fault(gate=hold)
        spec = msgspec.json.encode(shop.spec(hub_proxy="direct")).decode()
        words = [sys.executable, "-m", "engine", "--home", str(shop.root.root)]
        words += ["--job", "runtime", "--spec", spec]
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        assert reached.wait(60)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdin.close()
        gate.set()
        shop.index.faults.clear()
        assert newest_runtime(shop.root.runtime) is None
        with engine(shop.root.root, "--job", "runtime", "--spec", spec) as second:
            done = second.wait(JobDone)
        assert done.result["path"] == str(shop.target)
        assert newest_runtime(shop.root.runtime) == shop.target
        shutil.rmtree(shop.target)

    @pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is POSIX")
    @pytest.mark.parametrize("stage", ["unpack", "try"])
    def test_job_when_killed_behind_the_download_then_nothing_is_started(self, shop, stage):
        """Shows 5: what is unpacked and not yet tried has no name; the next one needs no network.

        `try` takes seconds, since an engine is started; so the end comes within it.
        """
        spec = msgspec.json.encode(shop.spec()).decode()
        with engine(shop.root.root, "--job", "runtime", "--spec", spec) as first:
            first.wait(Progress, stage=stage)
            first.process.kill()
        assert newest_runtime(shop.root.runtime) is None
        asked = len(shop.index.requests)
        with engine(shop.root.root, "--job", "runtime", "--spec", spec) as second:
            second.wait(JobDone)
        assert len(shop.index.requests) == asked
        assert newest_runtime(shop.root.runtime) == shop.target
        assert shop.left_behind() == [runtime.LOCK_NAME]
