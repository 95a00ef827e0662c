"""Releases: what is believed, what is asked, and what is said."""

import http.server
import json
import threading
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from app.services.settings import SettingsStore
from app.services.updates import LARGEST_BYTES, BadManifest, UpdateCheck, is_newer, read_manifest
from app.viewmodels.about import AboutViewModel
from engine.protocol.places import DataRoot
from installers.common import update_manifest

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = KEY.public_key().public_bytes_raw().hex()
PAGE = "https://example.org/releases"


def manifest(version="9.9.9", page=PAGE, key=KEY):
    return update_manifest.signed(version, page, key)


def test_manifest_when_signed_by_us_then_release_is_known():
    release = read_manifest(manifest(), PUBLIC)
    assert (release.version, release.page) == ("9.9.9", PAGE)


def test_manifest_when_signed_by_another_or_changed_then_refused():
    """A mirror, a proxy or a thief of the address cannot announce anything."""
    other = Ed25519PrivateKey.generate()
    with pytest.raises(BadManifest, match="not signed"):
        read_manifest(manifest(key=other), PUBLIC)
    with pytest.raises(BadManifest, match="not signed"):
        read_manifest(manifest().replace(b"9.9.9", b"9.9.8"), PUBLIC)


@pytest.mark.parametrize(
    "data",
    [b"", b"<html>", b"{}", b'{"signed": 3, "signature": "00"}', b'{"signed":"","signature":"zz"}'],
)
def test_manifest_when_no_manifest_then_said(data):
    with pytest.raises(BadManifest):
        read_manifest(data, PUBLIC)


@pytest.mark.parametrize("facts", [("1.x", PAGE), ("1.2", "http://a"), ("1.2", "file:///etc")])
def test_manifest_when_signed_but_odd_then_refused(facts):
    """Only a version of numbers and a page that a browser opens safely."""
    with pytest.raises(BadManifest, match="no list"):
        read_manifest(manifest(*facts), PUBLIC)


@pytest.mark.parametrize(
    ("version", "than", "newer"),
    [
        ("0.2.0", "0.1.0", True),
        ("0.1.0", "0.1.0", False),
        ("0.10.0", "0.9.9", True),
        ("1.0", "1.0.0", False),
        ("1.0.0", "1.0.0rc1", True),
        ("0.9", "1.0", False),
    ],
)
def test_versions_when_compared_then_by_their_numbers(version, than, newer):
    assert is_newer(version, than) is newer


PARTS = st.lists(st.integers(0, 99), min_size=3, max_size=3)


@given(PARTS, PARTS)
def test_versions_when_any_two_then_at_most_one_is_newer(left, right):
    a, b = (".".join(map(str, parts)) for parts in (left, right))
    assert is_newer(a, b) == (left > right)
    assert not (is_newer(a, b) and is_newer(b, a))


class Site:
    """One file on loopback, and what was asked for."""

    def __init__(self):
        self.body, self.status, self.asked = manifest(), 200, []
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                site.asked.append(dict(self.headers.items()))
                self.send_response(site.status)
                self.send_header("Content-Length", str(len(site.body)))
                self.end_headers()
                self.wfile.write(site.body)

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/release.json"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def site():
    made = Site()
    yield made
    made.close()


def about(tmp_path: Path, url: str, version="0.1.0"):
    store = SettingsStore(tmp_path / "settings.json")
    return AboutViewModel(store, UpdateCheck(url, PUBLIC), version, DataRoot(tmp_path)), store


def test_start_when_nobody_wants_it_then_nothing_is_asked(qtbot, tmp_path, site):
    """Off by default."""
    vm, _ = about(tmp_path, site.url)
    vm.begin()
    qtbot.wait(1)
    assert not vm.is_on
    assert not vm.is_asking
    assert not site.asked
    vm.close()


def test_look_when_asked_then_newer_release_is_told_in_place(qtbot, tmp_path, site):
    vm, _ = about(tmp_path, site.url)
    vm.ask()
    assert vm.tone == "pending"
    qtbot.waitUntil(lambda: vm.newer is not None, timeout=5_000)
    assert "9.9.9" in vm.sentence
    assert {name.lower() for name in site.asked[0]} <= {
        "host", "user-agent", "connection", "accept-encoding", "accept-language",
    }  # fmt: skip
    vm.close()


def test_start_when_wanted_then_a_release_is_announced_once(qtbot, tmp_path, site):
    vm, store = about(tmp_path, site.url)
    store.set(update_check=True)
    with qtbot.waitSignal(vm.told) as told:
        vm.begin()
    assert told.args[1] == PAGE
    seen = []
    vm.told.connect(lambda *_: seen.append(1))
    with qtbot.waitSignal(vm._check.known):
        vm.begin()
    assert not seen
    vm.close()


def test_look_when_this_is_the_newest_then_it_says_so(qtbot, tmp_path, site):
    vm, _ = about(tmp_path, site.url, version="9.9.9")
    vm.ask()
    qtbot.waitUntil(lambda: vm.tone == "applied", timeout=5_000)
    assert vm.newer is None
    vm.close()


@pytest.mark.parametrize("kind", ["status", "large", "unsigned"])
def test_look_when_the_answer_is_bad_then_a_sentence(qtbot, tmp_path, site, kind):
    """Too large is cut off, not read to its end."""
    if kind == "status":
        site.status = 404
    site.body = {
        "status": b"", "large": b" " * (LARGEST_BYTES * 40), "unsigned": json.dumps({}).encode()
    }[kind]  # fmt: skip
    vm, _ = about(tmp_path, site.url)
    vm.ask()
    qtbot.waitUntil(lambda: vm.tone == "refused", timeout=5_000)
    assert vm.newer is None
    vm.close()


def test_build_when_it_knows_no_address_then_nothing_can_be_asked(qtbot, tmp_path):
    vm, _ = about(tmp_path, "")
    vm.ask()
    assert not vm.can_check
    assert not vm.is_asking
    assert "no address" in vm.sentence
