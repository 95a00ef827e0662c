"""The download job against a hub on loopback that cuts, lies, refuses and stalls."""

import json
import logging
import shutil
import threading
import urllib.request
from itertools import pairwise
from pathlib import Path

import pytest

from engine.checkpoint.source import SourceCheckpoint
from engine.jobs import convert, download, hub_file
from engine.jobs import hub as hub_module
from engine.protocol.errors import (
    Cancelled,
    CorruptCheckpoint,
    DiskFull,
    FileAccess,
    GatedModel,
    InvalidRequest,
    NetworkError,
    NotOnHub,
    TokenNeeded,
    UnsupportedCheckpoint,
)
from engine.protocol.messages import JobDone, Progress
from tests.e2e.engine_process import engine
from tests.support.checkpoints import tiny_config, write_json
from tests.support.mock_hub import BLOCK, COMMIT, REPO, Fault, MockHub, serve, write_repo

NEVER = lambda: False  # noqa: E731


@pytest.fixture(scope="session")
def repo_folder(tmp_path_factory):
    return write_repo(tmp_path_factory.mktemp("hub") / "tiny-moe")


@pytest.fixture
def hub(repo_folder):
    with serve(MockHub(repo_folder)) as made:
        yield made


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Frames for every block, no waiting between tries, no proxy rules of this machine."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(download, "REPORT_S", 0.0)
    monkeypatch.setattr(hub_file, "CHUNK_BYTES", BLOCK)
    monkeypatch.setattr(
        download, "Hooks", lambda *given: hub_file.Hooks(*given, pause=lambda _seconds: None)
    )


def spec(hub, target, **more):
    base = {"repo": REPO, "target": str(target), "id": "d", "endpoint": hub.url}
    return {**base, "hub_proxy": "direct", **more}


def biggest(folder: Path) -> str:
    """The largest shard."""
    return max(folder.glob("model-*.safetensors"), key=lambda p: p.stat().st_size).name


def run(hub, target, emit=lambda _: None, cancelled=NEVER, **more):
    return download.run(spec(hub, target, **more), emit, cancelled)


def half_way(size, gate, reached=None):
    """A gate that stops the server at half a file until the client is gone."""

    def hold(offset):
        if offset >= size // 2:
            if reached is not None:
                reached.set()
            gate.wait(30)
            raise ConnectionResetError

    return hold


def weights(hub):
    return {n: c for n, c in hub.served.items() if n.startswith("model-") and "index" not in n}


def test_download_when_all_is_well_then_a_source_that_converts(hub, tmp_path):
    """Only needed files, each byte once, true totals, no temporary names; the result converts."""
    events = []
    result = run(hub, tmp_path / "m", events.append)
    names = {p.name for p in (tmp_path / "m").iterdir()}
    assert "LICENSE" in names
    assert not names & {"README.md", "pytorch_model.bin", "consolidated.safetensors", "evil.json"}
    assert not [n for n in names if n.endswith((".part", ".lock"))]
    assert result["commit"] == COMMIT
    assert sum(hub.served.values()) == result["num_bytes"]
    frames = [e for e in events if isinstance(e, Progress)]
    assert list(dict.fromkeys(f.stage for f in frames)) == ["check", "download"]
    assert frames[-1].done_bytes == frames[-1].total_bytes == result["num_bytes"]
    assert {f.id for f in frames} == {"d"}
    SourceCheckpoint(tmp_path / "m")
    order = {"source": str(tmp_path / "m"), "target": str(tmp_path / "ftw")}
    made = convert.run(order, events.append, NEVER)
    assert made["model_type"] == "qwen3_moe"


def test_download_again_then_nothing_is_fetched(hub, tmp_path):
    """A whole folder costs one listing."""
    run(hub, tmp_path / "m")
    hub.served.clear()
    events = []
    run(hub, tmp_path / "m", events.append)
    assert not hub.served
    assert events[-1].done_bytes == events[-1].total_bytes


def test_download_when_cut_at_half_then_resumed_without_a_byte_twice(hub, repo_folder, tmp_path):
    """D-02, inside one run: the connection is lost three times; a sentence says so meanwhile."""
    name = biggest(repo_folder)
    size = (repo_folder / name).stat().st_size
    hub.faults[name] = Fault(cut_at=size // 2, cuts=1)
    events = []
    run(hub, tmp_path / "m", events.append)
    assert hub.served[name] == size
    retries = [e for e in events if isinstance(e, Progress) and e.stage == "retry"]
    assert len(retries) == 1
    assert "lost" in retries[0].detail


def test_download_when_cancelled_then_resumed_by_the_next_run(hub, repo_folder, tmp_path):
    """D-02: stopped half-way, taken up again; served <= size + one chunk per file."""
    name = biggest(repo_folder)
    size = (repo_folder / name).stat().st_size
    stop, gate = threading.Event(), threading.Event()
    hub.faults[name] = Fault(gate=half_way(size, gate))

    def emit(event):
        if isinstance(event, Progress) and event.detail == name and event.done_bytes:
            part = tmp_path / "m" / (name + ".part")
            if part.exists() and part.stat().st_size >= size // 2 - BLOCK:
                stop.set()

    with pytest.raises(Cancelled):
        run(hub, tmp_path / "m", emit, stop.is_set)
    gate.set()
    assert not (tmp_path / "m" / name).exists()
    hub.faults.clear()
    events = []
    result = run(hub, tmp_path / "m", events.append)
    for other, count in weights(hub).items():
        assert count <= (repo_folder / other).stat().st_size + BLOCK
    first = next(e for e in events if isinstance(e, Progress) and e.stage == "download")
    assert 0 < first.done_bytes < result["num_bytes"]  # speed is not measured from zero
    SourceCheckpoint(tmp_path / "m")


def test_download_process_when_killed_then_resumed_with_the_token_off_the_command_line(
    hub, repo_folder, tmp_path, monkeypatch
):
    """kill -9 leaves nothing half-named (D-05); the token travels by the environment."""
    name = biggest(repo_folder)
    size = (repo_folder / name).stat().st_size
    reached, gate, hub.need_token = threading.Event(), threading.Event(), "hf_right"
    hub.faults[name] = Fault(gate=half_way(size, gate, reached))
    monkeypatch.setenv("FREETOKEN_HUB_TOKEN", "hf_right")
    order = ("--job", "download", "--spec", json.dumps(spec(hub, tmp_path / "m")))
    with engine(tmp_path / "home", *order) as process:
        process.wait(Progress, stage="download", detail=name)
        assert reached.wait(30)
        process.process.kill()
        process.process.wait(30)
        assert "hf_right" not in process.stderr
    gate.set()
    assert not (tmp_path / "m" / name).exists()
    hub.faults.clear()
    with engine(tmp_path / "home", *order) as process:
        assert process.wait(JobDone).result["commit"] == COMMIT
        assert process.end() == 0
    for other, count in weights(hub).items():
        assert count <= (repo_folder / other).stat().st_size + 1024**2
    SourceCheckpoint(tmp_path / "m")


def test_download_when_a_range_is_answered_whole_then_begun_anew(hub, repo_folder, tmp_path):
    """D-04: no bytes are appended wrongly; counted back, so that the total stays true."""
    name = biggest(repo_folder)
    size = (repo_folder / name).stat().st_size
    hub.faults[name] = Fault(cut_at=size // 2, cuts=1, whole=1)
    events = []
    run(hub, tmp_path / "m", events.append)
    assert (tmp_path / "m" / name).read_bytes() == (repo_folder / name).read_bytes()
    frames = [e.done_bytes for e in events if isinstance(e, Progress) and e.stage == "download"]
    assert any(b < a for a, b in pairwise(frames))
    assert events[-1].done_bytes == events[-1].total_bytes


def test_download_when_a_part_is_too_long_or_unsatisfiable_then_begun_anew(
    hub, repo_folder, tmp_path
):
    """A part of another version: longer than listed, or the server says 416."""
    name = biggest(repo_folder)
    size = (repo_folder / name).stat().st_size
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / f"{name}.part").write_bytes(b"x" * (size + 1))
    run(hub, tmp_path / "m")
    assert (tmp_path / "m" / name).read_bytes() == (repo_folder / name).read_bytes()
    other = tmp_path / "n"
    other.mkdir()
    (other / f"{name}.part").write_bytes(b"x" * 100)
    hub.faults[name] = Fault(status=416, statuses=1)
    run(hub, other)
    assert (other / name).read_bytes() == (repo_folder / name).read_bytes()


def test_download_when_bytes_are_wrong_once_then_only_that_file_again(hub, repo_folder, tmp_path):
    """D-04: SHA-256 per file; the other files are fetched once."""
    name = biggest(repo_folder)
    hub.faults[name] = Fault(damage=1)
    run(hub, tmp_path / "m")
    for other, count in weights(hub).items():
        size = (repo_folder / other).stat().st_size
        assert count == (2 * size if other == name else size)


def test_download_when_bytes_stay_wrong_then_the_file_is_named(hub, repo_folder, tmp_path):
    """Twice is enough; nothing damaged bears a name, the rest is kept."""
    name = biggest(repo_folder)
    hub.wrong_hash = (name,)
    with pytest.raises(CorruptCheckpoint, match=name):
        run(hub, tmp_path / "m")
    assert not list((tmp_path / "m").glob(f"{name}*"))
    assert (tmp_path / "m" / "config.json").exists()


def test_download_when_a_small_file_is_damaged_then_fetched_again(hub, tmp_path):
    """Files outside LFS are checked by their git blob id."""
    hub.faults["tokenizer.json"] = Fault(damage=1)
    run(hub, tmp_path / "m")
    assert hub.served["tokenizer.json"] == 2 * (hub.folder / "tokenizer.json").stat().st_size


def test_download_when_the_server_is_busy_then_tried_again(hub, tmp_path):
    """503 and 429 pass; the listing too."""
    hub.faults["listing"] = Fault(status=429, statuses=2)
    hub.faults["config.json"] = Fault(status=503, statuses=3)
    run(hub, tmp_path / "m")
    hub.faults["listing"] = Fault(status=503, statuses=9)
    with pytest.raises(NetworkError, match="503"):
        run(hub, tmp_path / "n")


def test_download_when_the_line_stays_dead_then_an_end_and_the_bytes_are_kept(
    hub, repo_folder, tmp_path
):
    """No endless retries (D-08); what came is resumed later."""
    name = biggest(repo_folder)
    size = (repo_folder / name).stat().st_size
    hub.faults[name] = Fault(cut_at=size // 2, cuts=99)
    with pytest.raises(NetworkError, match="lost") as caught:
        run(hub, tmp_path / "m")
    assert "network connection" in caught.value.hint
    assert (tmp_path / "m" / f"{name}.part").stat().st_size == size // 2


def test_download_when_a_token_is_needed_then_each_state_has_its_sentence(hub, tmp_path):
    """D-10: none -> enter one; one without the right -> accept the licence, with the link."""
    hub.need_token = "hf_right"
    with pytest.raises(TokenNeeded, match="private"):
        run(hub, tmp_path / "m")
    with pytest.raises(TokenNeeded, match="does not accept"):
        run(hub, tmp_path / "m", hub_token="hf_wrong")
    hub.is_gated = True
    with pytest.raises(TokenNeeded) as none:
        run(hub, tmp_path / "m")
    with pytest.raises(GatedModel) as gated:
        run(hub, tmp_path / "m", hub_token="hf_wrong")
    for problem in (none.value, gated.value):
        assert f"{hub.url}/{REPO}" in problem.hint
        assert "hf_wrong" not in problem.message + problem.hint
    run(hub, tmp_path / "m", hub_token="hf_right")


def test_download_when_redirected_elsewhere_then_the_token_stays_behind(hub, repo_folder, tmp_path):
    """The other host gets the range, not the token; nothing in the log."""
    hub.need_token = "hf_right"
    with serve(MockHub(repo_folder)) as cdn:
        hub.redirect_to = cdn.url.replace("127.0.0.1", "localhost")
        run(hub, tmp_path / "m", hub_token="hf_right")
        assert cdn.requests
        assert all("Authorization" not in headers for _, headers in cdn.requests)
    hub.redirect_to = hub.url
    run(hub, tmp_path / "n", hub_token="hf_right")


def test_download_when_done_then_the_token_is_in_no_file_and_no_log(hub, tmp_path, caplog):
    """D-10: the token is never written down."""
    caplog.set_level(logging.DEBUG)
    hub.need_token = "hf_secret"
    run(hub, tmp_path / "m", hub_token="hf_secret")
    assert "hf_secret" not in caplog.text
    assert not [p for p in (tmp_path / "m").iterdir() if b"hf_secret" in p.read_bytes()]


def test_download_when_unknown_then_not_found(hub, tmp_path):
    """404 names the model; a name that is none is refused before any request."""
    with pytest.raises(NotOnHub, match="maker/other"):
        run(hub, tmp_path / "m", repo="maker/other")
    count = len(hub.requests)
    for repo in ("just-a-name", "a/b/c", "../x", "a/..", "", "a/b?c", "a b/c"):
        with pytest.raises(InvalidRequest, match="OWNER/NAME"):
            run(hub, tmp_path / "n", repo=repo)
    assert len(hub.requests) == count
    assert not (tmp_path / "n").exists()


@pytest.mark.parametrize("proxy", ["http://me:hunter2@127.0.0.1:9", "127.0.0.1:9"])
def test_download_when_the_proxy_is_dead_then_named_at_once(hub, tmp_path, proxy):
    """D-11: the proxy is named, its password is not; no request reaches the hub."""
    with pytest.raises(NetworkError, match=r"proxy http://127\.0\.0\.1:9") as caught:
        run(hub, tmp_path / "m", hub_proxy=proxy)
    assert "hunter2" not in caught.value.message + caught.value.hint
    assert not hub.requests


def test_download_through_a_proxy_then_it_gets_the_requests(hub, tmp_path):
    """A plain proxy is handed whole addresses: the mock takes their path, so it can be one."""
    run(hub, tmp_path / "m", endpoint="http://hub.invalid", hub_proxy=hub.url)
    assert hub.requests[0][1]["Host"] == "hub.invalid"


def test_download_when_nothing_listens_then_no_network(tmp_path):
    """A closed port; a name that is no address."""
    order = {"repo": REPO, "target": str(tmp_path / "m"), "hub_proxy": "direct"}
    with pytest.raises(NetworkError, match="refused"):
        download.run(order | {"endpoint": "http://127.0.0.1:9"}, lambda _: None, NEVER)
    for address in ("ftp://x", "huggingface.co", "http://"):
        with pytest.raises(InvalidRequest, match="address"):
            download.run(order | {"endpoint": address}, lambda _: None, NEVER)


def test_download_from_a_mirror_then_every_request_goes_there(hub, repo_folder, tmp_path):
    """D-13: listing, files and resume."""
    name = biggest(repo_folder)
    hub.faults[name] = Fault(cut_at=BLOCK, cuts=1)
    run(hub, tmp_path / "m")
    assert all(
        p.startswith((f"/api/models/{REPO}", f"/{REPO}/resolve/{COMMIT}")) for p in hub.paths
    )
    assert len(hub.paths) > 5


def test_download_from_a_mirror_that_lists_no_hashes_then_refused(hub, tmp_path):
    """What cannot be verified is not fetched; an empty file is never taken for a whole one."""
    hub.is_bare = True
    with pytest.raises(NetworkError, match="verified"):
        run(hub, tmp_path / "m")
    assert not hub.served


def test_download_when_the_models_folder_is_away_then_nothing_is_made(hub, tmp_path):
    """D-17: a disk that was taken out while the download was paused."""
    away = tmp_path / "mnt" / "models"
    with pytest.raises(FileAccess, match="is not there"):
        run(hub, away / ".downloads" / "m", room_at=str(away))
    assert not (tmp_path / "mnt").exists()


def test_download_when_the_own_folder_is_not_there_then_made(hub, tmp_path):
    """Only a chosen folder can be a disk that is away (D-17)."""
    own = tmp_path / "data" / "models"
    run(hub, own / ".downloads" / "m", room_at=str(own), own_folder=str(own))
    assert (own / ".downloads" / "m" / "config.json").is_file()


def test_download_when_main_moves_on_then_the_pinned_commit_is_fetched(hub, tmp_path):
    """A resumed download gets the bytes it began with: the second listing asks for the commit."""
    hub.faults["model.safetensors.index.json"] = Fault(status=404, statuses=1)
    with pytest.raises(NotOnHub):
        run(hub, tmp_path / "m")
    run(hub, tmp_path / "m")
    listings = [p for p in hub.paths if p.startswith("/api")]
    assert [p.rpartition("/")[2] for p in listings] == ["main", COMMIT]
    with pytest.raises(InvalidRequest, match="holds a download"):
        run(hub, tmp_path / "m", repo="maker/other")


@pytest.mark.parametrize("room", [False, True])
def test_download_when_the_disk_is_too_small_then_refused_before_the_first_byte(
    hub, tmp_path, monkeypatch, room
):
    """D-08: download, and the conversion after it, must fit."""
    total = sum(p.stat().st_size for p in hub.folder.iterdir())
    free = round(total * 1.5) if room else total // 2
    monkeypatch.setattr("engine.checkpoint.files.free_bytes", lambda _: free)
    (tmp_path / "models").mkdir()
    more = {"room_at": str(tmp_path / "models")} if room else {}
    with pytest.raises(DiskFull, match="are free"):
        run(hub, tmp_path / "m", **more)
    assert not hub.served
    if room:
        run(hub, tmp_path / "m")


def test_download_when_the_disk_fills_up_then_a_clear_end(hub, tmp_path, monkeypatch):
    """D-08: the disk is named, no retry."""

    def full(_out, _data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(hub_file, "_write", full)
    with pytest.raises(DiskFull, match="is full"):
        run(hub, tmp_path / "m")


def test_download_when_the_family_is_unknown_then_no_weights_are_fetched(repo_folder, tmp_path):
    """60 GB for nothing would be unkind."""
    folder = shutil.copytree(repo_folder, tmp_path / "other")
    write_json(folder / "config.json", tiny_config() | {"model_type": "made_up"})
    with serve(MockHub(folder)) as hub:
        with pytest.raises(UnsupportedCheckpoint, match="made_up"):
            run(hub, tmp_path / "m")
        assert not weights(hub)
    (folder / "config.json").unlink()
    with serve(MockHub(folder)) as hub, pytest.raises(UnsupportedCheckpoint, match="config"):
        run(hub, tmp_path / "n")


def test_download_when_another_runs_into_the_folder_then_refused(hub, tmp_path):
    """Two jobs never write the same part."""
    inside = []

    def emit(event):
        if isinstance(event, Progress) and event.stage == "download" and not inside:
            inside.append(True)
            with pytest.raises(FileAccess, match="already"):
                run(hub, tmp_path / "m")

    run(hub, tmp_path / "m", emit)
    assert inside


def test_download_when_the_pin_is_lost_then_files_of_another_commit_are_hashed_again(hub, tmp_path):
    """Same names, same sizes, other bytes: sizes alone must not make a mixed checkpoint."""
    target = tmp_path / "m"
    download.run(spec(hub, target), lambda _: None, NEVER)
    weights = sorted(target.glob("*.safetensors"))[0]
    right = weights.read_bytes()
    weights.write_bytes(right[:-1] + bytes([right[-1] ^ 1]))  # as another commit could hold
    (target / download.PIN_NAME).write_bytes(b"")  # as a power cut could leave it
    download.run(spec(hub, target), lambda _: None, NEVER)
    assert weights.read_bytes() == right


def test_download_when_rechecked_then_only_what_is_damaged_comes_again(hub, repo_folder, tmp_path):
    """C-01, D-04: a byte that flipped on the disk is found by hash; whole files are kept."""
    target = tmp_path / "m"
    run(hub, target)
    name = biggest(repo_folder)
    raw = bytearray((target / name).read_bytes())
    raw[len(raw) // 2] ^= 1
    (target / name).write_bytes(raw)
    hub.served.clear()
    run(hub, target)
    assert not hub.served, "sizes alone do not tell"
    run(hub, target, recheck=True)
    assert dict(hub.served) == {name: len(raw)}
    assert (target / name).read_bytes() == (repo_folder / name).read_bytes()


def test_download_and_conversion_then_the_model_knows_its_repository(hub, tmp_path):
    """What the app judges "installed" by."""
    run(hub, tmp_path / "m")
    order = {"source": str(tmp_path / "m"), "target": str(tmp_path / "ftw")}
    convert.run(order, lambda _: None, NEVER)
    index = json.loads((tmp_path / "ftw" / "model.ftw").read_bytes())
    assert (index["source"]["repo"], index["source"]["commit"]) == (REPO, COMMIT)


def test_redirect_when_the_scheme_or_host_changes_then_the_token_stays_behind():
    """A token given to https does not go on in clear text."""
    follow = hub_module._Redirects(("https", "hub.example"), "secret")
    for url, has_token in (
        ("https://hub.example/b", True),
        ("http://hub.example/b", False),
        ("https://other.example/b", False),
    ):
        request = urllib.request.Request("https://hub.example/a")
        new = follow.redirect_request(request, None, 302, "Found", {}, url)
        assert (new.get_header("Authorization") == "Bearer secret") is has_token


@pytest.mark.parametrize(
    "name", ["a/b.safetensors", "..", "con.json", "a\0.json", "x.json:y", "\\a", ".hidden"]
)
def test_names_that_leave_the_folder_are_no_plain_names(name):
    """A repository cannot choose where its files go, on any system."""
    assert download._PLAIN_NAME.fullmatch(name) is None
    assert download._PLAIN_NAME.fullmatch("model-00001-of-00003.safetensors")
