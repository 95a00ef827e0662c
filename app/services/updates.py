"""Whether there is a newer release: one signed file, asked for only when the person wants it.

The file is `{"signed": TEXT, "signature": HEX}`; TEXT is JSON with `version` and `page`. The
signature is Ed25519 over the bytes of TEXT; the public key was put into this build. Nothing about
this computer is sent, nothing is installed: the page is opened by the person. Knows no widget.
"""

import re
from dataclasses import dataclass

import msgspec
from PySide6.QtCore import QObject, QUrl, Signal
from PySide6.QtNetwork import QNetworkAccessManager, QNetworkReply, QNetworkRequest

from app.wording import Phrase, tr

LARGEST_BYTES = 64 * 1024
TIMEOUT_S = 15.0
_NUMBERS = re.compile(r"\d+(\.\d+){0,3}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Release:
    """A release and the page that it is fetched from."""

    version: str
    page: str


class BadManifest(Exception):
    """The file is none of ours; the text says why, in the person's language."""

    def __init__(self, words: Phrase) -> None:
        super().__init__(words)
        self.words = words


class _Manifest(msgspec.Struct):
    signed: str
    signature: str


class _Release(msgspec.Struct):
    version: str
    page: str


def read_manifest(data: bytes, key: str) -> Release:
    """Check the signature, then read. Raises: BadManifest.

    Args:
        data: the file as it came.
        key: the public key, 64 hexadecimal digits.
    """
    # Slow to import, and only needed by who looks for releases.
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        manifest = msgspec.json.decode(data, type=_Manifest)
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
        public.verify(bytes.fromhex(manifest.signature), manifest.signed.encode())
        release = msgspec.json.decode(manifest.signed, type=_Release)
    except InvalidSignature as problem:
        raise BadManifest(
            tr("The answer is not signed by the makers of this program.")
        ) from problem
    except (msgspec.MsgspecError, ValueError) as problem:
        raise BadManifest(tr("The answer is no list of releases.")) from problem
    if not _NUMBERS.fullmatch(release.version) or not release.page.startswith("https://"):
        raise BadManifest(tr("The answer is no list of releases."))
    return Release(release.version, release.page)


def is_newer(version: str, than: str) -> bool:
    """Compare versions number by number; a release is newer than its own trial builds."""
    left, right = _parts(version), _parts(than)
    length = max(len(left), len(right))
    pad = (0,) * length
    a, b = (left + pad)[:length], (right + pad)[:length]
    return a > b or (a == b and bool(_NUMBERS.fullmatch(version)) > bool(_NUMBERS.fullmatch(than)))


def _parts(version: str) -> tuple[int, ...]:
    head = _NUMBERS.match(version)
    return tuple(int(part) for part in head.group().split(".")) if head else ()


class UpdateCheck(QObject):
    """Asks for the file.

    Args:
        url: where it is, "" = nowhere.
        key: the public key.

    Signals:
        known(Release): the newest release, newer than this one or not.
        failed(str): why nothing is known.
    """

    known = Signal(object)
    failed = Signal(str)

    def __init__(self, url: str, key: str) -> None:
        super().__init__()
        self._url, self._key = url, key
        self._network: QNetworkAccessManager | None = None  # made when first needed
        self._reply: QNetworkReply | None = None

    @property
    def is_possible(self) -> bool:
        """Whether this build knows an address and a key."""
        return bool(self._url and self._key)

    @property
    def is_asking(self) -> bool:
        """Whether an answer is awaited."""
        return self._reply is not None

    def ask(self) -> None:
        """Ask; `known` or `failed` follows. Does nothing while an answer is awaited."""
        if self._reply is not None or not self.is_possible:
            return
        if self._network is None:
            self._network = QNetworkAccessManager(self)
        request = QNetworkRequest(QUrl(self._url))
        request.setRawHeader(b"User-Agent", b"freetoken-desktop")
        request.setAttribute(
            QNetworkRequest.Attribute.CookieLoadControlAttribute, QNetworkRequest.LoadControl.Manual
        )
        request.setTransferTimeout(round(TIMEOUT_S * 1000))
        self._reply = self._network.get(request)
        self._reply.downloadProgress.connect(self._on_progress)
        self._reply.finished.connect(self._on_finished)

    def close(self) -> None:
        """Hang up; nothing follows."""
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.abort()
            reply.deleteLater()

    def _on_progress(self, done: int, _total: int) -> None:
        if done > LARGEST_BYTES and self._reply is not None:
            self._reply.abort()

    def _on_finished(self) -> None:
        reply, self._reply = self._reply, None
        if reply is None:
            return
        data = bytes(reply.readAll().data())
        problem = reply.errorString()
        is_good = reply.error() == QNetworkReply.NetworkError.NoError
        reply.deleteLater()
        if not is_good:
            self.failed.emit(tr("No answer about releases: {reason}", reason=problem))
            return
        try:
            self.known.emit(read_manifest(data, self._key))
        except BadManifest as wrong:
            self.failed.emit(wrong.words)
