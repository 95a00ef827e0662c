"""Token, downloads on disk, and two lines of jobs."""

import threading

from app.services.catalog import read_catalog
from app.services.downloads import Downloads, Kept, download_folder, is_download
from app.services.job_runner import JobRunner
from app.services.job_state import JobExtra
from app.services.secrets import SecretStore, system_keyring
from tests.app.discover.parts import StubKeyring
from tests.support.app_engine import fake_program


def test_secrets_when_the_keyring_holds_a_token_then_it_is_there_before_the_job(qtbot):
    """Asked on a thread, once; whoever waits is called when it has answered."""
    threads = []

    def find():
        threads.append(threading.current_thread())
        return StubKeyring("hf_kept")

    store, called = SecretStore(find), []
    store.when_loaded(lambda: called.append(store.token))
    store.when_loaded(lambda: called.append(store.token))
    assert called == []
    qtbot.waitUntil(lambda: len(called) == 2)
    assert called == ["hf_kept", "hf_kept"]
    assert store.is_kept
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()
    store.when_loaded(lambda: called.append("at once"))
    assert called[-1] == "at once"


def test_secrets_when_there_is_no_keyring_or_it_breaks_then_asked_per_run(qtbot):
    """The token is used all the same, and kept nowhere."""

    class Broken(StubKeyring):
        def get_password(self, _service, _name):
            raise RuntimeError("locked")

        set_password = get_password

    for ring in (None, Broken()):
        store, called = SecretStore(lambda ring=ring: ring), []
        store.when_loaded(lambda called=called: called.append(True))
        qtbot.waitUntil(lambda called=called: called == [True])
        with qtbot.waitSignals([store.changed, store.changed]):
            store.remember(" hf_x ")
        assert (store.token, store.is_kept) == ("hf_x", False)


def test_secrets_when_the_keyring_hangs_then_the_download_begins(qtbot, monkeypatch):
    """A prompt that nobody sees must not hold everything."""
    monkeypatch.setattr("app.services.secrets.LIMIT_MS", 10)
    gate = threading.Event()

    def find():
        gate.wait(10)

    store, called = SecretStore(find), []
    store.when_loaded(lambda: called.append(True))
    qtbot.waitUntil(lambda: called == [True])
    gate.set()


def test_secrets_when_looking_for_a_keyring_fails_then_the_download_begins(qtbot):
    """A broken configuration of the package is no reason to wait, nor an error of ours."""

    def broken():
        raise RuntimeError("no such backend")

    store, begun = SecretStore(broken), []
    with qtbot.waitSignal(store.changed, timeout=1_000):
        store.when_loaded(lambda: begun.append(True))
    qtbot.waitUntil(lambda: bool(begun), timeout=1_000)
    store.remember("hf_x")
    assert (store.token, store.is_kept) == ("hf_x", False)


def test_system_keyring_when_none_works_then_none(monkeypatch):
    """A machine without a keyring service has a backend that only fails."""
    keyring = __import__("pytest").importorskip("keyring")
    from keyring.backends import fail

    monkeypatch.setattr(keyring, "get_keyring", fail.Keyring)
    assert system_keyring() is None


def test_remove_then_only_downloads_of_ours(qtbot, tmp_path):
    """A pin file and the place decide; the bytes are told, however many."""
    ours = download_folder(tmp_path, "maker/model")
    ours.mkdir(parents=True)
    (ours / "model.safetensors.part").write_bytes(b"x" * 100)
    other = tmp_path / "converted"
    other.mkdir()
    (other / "download.json").write_text("{}")
    downloads = Downloads()
    downloads.remove(ours)  # no pin yet: not known to be ours
    downloads.remove(other)
    assert not is_download(ours)
    assert not is_download(other)
    (ours / "download.json").write_text("{}")
    assert is_download(ours)
    (ours / "download.json").write_text('{"repo": "maker/model", "commit": "c"}')
    with qtbot.waitSignal(downloads.found) as found:
        downloads.look(tmp_path)
    assert found.args == [(Kept(ours, "maker/model", 138),)]
    with qtbot.waitSignal(downloads.removed) as gone:
        downloads.remove(ours)
    assert gone.args == [str(ours), 138]
    assert not (tmp_path / ".downloads").exists()
    assert other.exists()


def test_ask_room_then_more_than_32_bits(qtbot, tmp_path):
    """The folder need not be there yet; a disk is larger than an int of Qt."""
    downloads = Downloads()
    with qtbot.waitSignal(downloads.room) as told:
        downloads.ask_room(tmp_path / "not" / "yet")
    assert told.args[0] > 0
    with qtbot.waitSignal(downloads.room) as told:
        downloads.room.emit(3 << 40)
    assert told.args == [3 << 40]


def test_download_and_conversion_then_side_by_side(qtbot, tmp_path):
    """An hour of download must not make the built-in model wait; two downloads take turns."""
    runner = JobRunner(
        fake_program("--job-seconds", "30"), tmp_path / "jobs.json", kill_after_s=0.4
    )
    runner.start("download", {})
    runner.start("download", {})
    runner.start("convert", {})
    assert [job.phase for job in runner.jobs()] == ["running", "waiting", "running"]
    seen = set()
    runner.progress.connect(lambda job_id, _: seen.add(job_id))
    qtbot.waitUntil(lambda: seen == {"job-1", "job-3"})
    with qtbot.waitSignal(runner.idle, timeout=5_000):
        runner.close()
    again = JobRunner(fake_program(), tmp_path / "jobs.json")
    assert {job.phase for job in again.jobs()} == {"interrupted"}


def test_extra_then_only_the_child_knows_it(qtbot, tmp_path):
    """Asked at each start; neither the list nor the file on disk holds it."""
    runner = JobRunner(fake_program(), tmp_path / "jobs.json")
    asked = []

    def provide():
        asked.append(True)
        return JobExtra({"target": str(tmp_path / "out")}, {"SECRET": "hf_x"})

    runner.set_extra("convert", provide)
    with qtbot.waitSignal(runner.done) as done:
        runner.start("convert", {"id": "a"})
    assert done.args[1].result == {"path": str(tmp_path / "out")}
    assert asked == [True]
    assert "hf_x" not in (tmp_path / "jobs.json").read_text("utf-8")
    assert runner.jobs()[0].spec == {"id": "a"}


def test_catalog_when_an_entry_lacks_figures_then_nothing_is_predicted_from_them(tmp_path):
    """An entry of a newer list without experts is shown, and divides nothing by zero."""
    path = tmp_path / "models.json"
    path.write_text('{"models": [{"repo": "a/b", "title": "B", "layers": 4, "hidden": 8}]}')
    (entry,) = read_catalog(path)
    assert not entry.is_known
