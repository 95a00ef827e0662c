"""Lists of engine libraries, and offline bundles: from pip's words, with nothing downloaded."""

import functools
import hashlib
import http.server
import json
import subprocess
import threading
import zipfile
from pathlib import Path

import pytest

from engine.jobs.runtime_bundle import Bundle
from engine.protocol.runtime_lock import read_lock
from installers.common import bundle, lock, update_manifest
from tests.support.mock_index import make_lock, write_lock, write_wheel


class Ranged(http.server.SimpleHTTPRequestHandler):
    """Serves files by ranges and counts the bytes that it gave."""

    given = 0

    def log_message(self, *_):
        pass

    def do_GET(self):
        data = Path(self.translate_path(self.path)).read_bytes()
        first, last = self.headers["Range"].removeprefix("bytes=").split("-")
        part = data[int(first) : int(last) + 1]
        type(self).given += len(part)
        self.send_response(206)
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)


@pytest.fixture
def site(tmp_path):
    Ranged.given = 0
    handler = functools.partial(Ranged, directory=tmp_path)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def item(url: str, path: Path, name: str, version: str) -> dict:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {
        "download_info": {"url": url, "archive_info": {"hashes": {"sha256": digest}}},
        "metadata": {"name": name, "version": version},
    }


def test_sizes_when_the_archive_is_remote_then_only_its_end_is_read(tmp_path, site):
    """Gigabytes of CUDA libraries are listed in seconds."""
    wheel = write_wheel(tmp_path, "ftbig", {"ftbig/data.bin": bytes(3_000_000)})
    assert lock.sizes(f"{site}/{wheel.file}") == (wheel.size, wheel.unpacked)
    assert Ranged.given < 100_000


def test_wheel_when_local_version_then_its_channel_is_named_and_no_address(tmp_path):
    """The usual index lacks such builds."""
    path = tmp_path / write_wheel(tmp_path, "torch", {"torch.py": b""}).file
    local = path.rename(tmp_path / "torch-2.0+cpu-py3-none-any.whl")
    line = lock.wheel_of(item(local.as_uri(), local, "torch", "2.0+cpu"))
    assert (line.file, line.channel) == (local.name, "torch-cpu")
    plain = lock.wheel_of(item(local.as_uri(), local, "torch", "2.0"))
    assert plain.channel == ""


def test_make_when_pip_has_answered_then_a_sound_lock_is_written(tmp_path, monkeypatch):
    """Resolved in two steps: what would bring too much comes alone."""
    asked = []

    def pip(words, **_):
        asked.append(words)
        found = []
        for word in words:
            name = lock._name(word) if not word.startswith("-") else ""
            if name in ("torch", "tokenizers", "jinja2"):
                wheel = write_wheel(tmp_path, name, {f"{name}.py": b""})
                path = tmp_path / wheel.file
                found.append(item(path.as_uri(), path, name, "1.0"))
        return subprocess.CompletedProcess(words, 0, json.dumps({"install": found}), "")

    monkeypatch.setattr(lock.subprocess, "run", pip)
    words = ["--build", "cpu", "--python", "3.12", "--torch", "2.13.0", "--folder", str(tmp_path)]
    assert lock.main(words) == 0
    made = read_lock(tmp_path / "linux-x86_64-cp312-cpu.json")
    assert [wheel.name for wheel in made.wheels] == ["jinja2", "tokenizers", "torch"]
    first, second = asked
    assert "torch===2.13.0" in first
    assert not [word for word in first if word.startswith("tokenizers")]
    assert "--no-deps" in second


def test_make_when_pip_refuses_then_its_words_are_shown(tmp_path, monkeypatch, capsys):
    refusal = subprocess.CompletedProcess([], 1, "", "No matching distribution found")
    monkeypatch.setattr(lock.subprocess, "run", lambda *_, **__: refusal)
    words = ["--build", "cpu", "--python", "3.12", "--torch", "9", "--folder", str(tmp_path)]
    assert lock.main(words) == 1
    assert "No matching" in capsys.readouterr().err
    assert not list(tmp_path.glob("*.json"))


def test_versions_when_taken_from_another_lock_then_without_local_parts(tmp_path):
    wheel = write_wheel(tmp_path, "torch", {"torch.py": b""})
    path = write_lock(tmp_path / "l.json", make_lock(wheel))
    path.write_text(path.read_text().replace('"1.0"', '"1.0+cpu"'))
    assert lock.same_versions(path) == ["torch===1.0"]


def test_bundle_when_written_then_the_engine_reads_it(tmp_path):
    """Wheels are stored as they are."""
    wheel = write_wheel(tmp_path, "ftlib", {"ftlib.py": b"1"})
    made = make_lock(wheel)
    path = write_lock(tmp_path / "l.json", made)
    bundle.write(path, made, tmp_path, tmp_path / "x.ftruntime")
    assert Bundle(tmp_path / "x.ftruntime").lock == made
    with zipfile.ZipFile(tmp_path / "x.ftruntime") as archive:
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_STORED}


def test_bundle_when_fetched_then_pip_is_given_every_hash(tmp_path, monkeypatch):
    seen = {}

    def pip(words, **_):
        seen["words"] = words
        seen["wanted"] = Path(words[-1]).read_text()
        return subprocess.CompletedProcess(words, 0)

    monkeypatch.setattr(bundle.subprocess, "run", pip)
    wheel = write_wheel(tmp_path, "ftlib", {"ftlib.py": b"1"})
    made = make_lock(wheel)
    monkeypatch.setitem(bundle.PLATFORMS, made.platform, ["any"])
    bundle.fetch(made, tmp_path, ["--offline"])
    assert seen["wanted"] == f"ftlib===1.0 --hash=sha256:{wheel.sha256}\n"
    assert {"--require-hashes", "--no-deps", "--offline"} <= set(seen["words"])


@pytest.mark.linux
def test_update_key_when_made_then_only_its_owner_reads_it(tmp_path):
    path = tmp_path / "key.hex"
    public = update_manifest.new_key(path)
    assert len(bytes.fromhex(public)) == 32
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(FileExistsError):
        update_manifest.new_key(path)
