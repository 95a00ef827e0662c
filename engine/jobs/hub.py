"""A model hub over HTTP: what it has, what a repository holds, and the bytes of one file.

The only module of the engine that opens a connection. Standard library only, on purpose:
`huggingface_hub` downloads take no cancel, trust sizes instead of hashes, know no read timeout and
may switch to another transfer without a word; its metadata call reads environment and token files
and tells the hub what is installed. What is needed of the hub's public API is one GET of JSON and
ranged GETs. Called by `engine.jobs.search`, `engine.jobs.download` and `engine.jobs.hub_file`.
"""

import http.client
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from email.message import Message
from typing import IO, Any, TypeVar, cast

import msgspec

from engine.jobs.hub_errors import (
    OF_SETTINGS,
    OF_SYSTEM,
    HubPlace,
    lost,
    refused,
    useless_proxy,
)
from engine.protocol.errors import (
    GatedModel,
    InvalidRequest,
    NetworkError,
    NotOnHub,
    TokenNeeded,
)

ENDPOINT = "https://huggingface.co"
DIRECT = "direct"
TIMEOUT_S = 15.0
_MAX_LISTING_BYTES = 32 * 1024 * 1024
_NAME = re.compile(r"[A-Za-z0-9_][\w.-]*/[A-Za-z0-9_][\w.-]*", re.ASCII)
_LICENCE = "license:"
_T = TypeVar("_T")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file of a repository: its name, bytes, and SHA-256 (large files) or git blob SHA-1.

    A size of -1 or no hash means that the hub does not say.
    """

    name: str
    size: int
    sha256: str = ""
    blob_sha1: str = ""


@dataclass(frozen=True, slots=True)
class HubRepo:
    """A repository at one commit."""

    repo: str
    commit: str
    files: tuple[HubFile, ...]


@dataclass(frozen=True, slots=True)
class HubHit:
    """A repository that a search found; `commit` is that of its main branch, "" = not said."""

    repo: str
    commit: str
    licence: str
    downloads: int
    is_gated: bool


class HubBody:
    """The answer to a request for bytes; close it.

    Attributes:
        start: offset of the first byte, as the server says; 0 for a whole body.
    """

    def __init__(self, answer: http.client.HTTPResponse, start: int) -> None:
        self.start = start
        self._answer = answer

    def read(self, most: int) -> bytes:
        """Return what has arrived, at most `most` bytes; b"" at the end, however it came.

        Raises: OSError, http.client.HTTPException.
        """
        return self._answer.read1(most)

    def close(self) -> None:
        """Hang up."""
        self._answer.close()


class Hub:
    """One hub, or a mirror of it.

    Args:
        endpoint: "https://host[/path]"; every request goes there (case D-13).
        proxy: "http://[user:password@]host:port", "" = as the system says, "direct" = none.
        token: sent to the endpoint only, never to where it redirects, never over plain HTTP to
            another machine.

    Raises (constructor): InvalidRequest for an address that is none, also of a proxy that the
        system names.
    """

    def __init__(
        self, endpoint: str = "", proxy: str = "", token: str = "", timeout_s: float = TIMEOUT_S
    ) -> None:
        self.endpoint = (endpoint or ENDPOINT).rstrip("/")
        parts = _checked(self.endpoint, "hub")
        if proxy and proxy != DIRECT:
            proxy = proxy if "://" in proxy else f"http://{proxy}"
            _checked(proxy, "proxy")
        is_private = parts.scheme == "https" or parts.hostname in _LOOPBACK
        self._token = token if is_private else ""
        self._timeout_s = timeout_s
        used = _proxies(proxy)
        # Asked as urllib asks: with the port.
        is_passed_by = urllib.request.proxy_bypass(parts.netloc.rpartition("@")[2])
        self._place = HubPlace(
            self.endpoint,
            "" if is_passed_by else used.get(parts.scheme, ""),
            bool(self._token),
            OF_SETTINGS if proxy else _variable(parts.scheme) or OF_SYSTEM,
        )
        if self._place.proxy and not _is_proxy(self._place.proxy):
            raise useless_proxy(self._place)
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler(used), _Redirects((parts.scheme, parts.netloc), self._token)
        )

    def search(self, query: str, tags: Sequence[str], limit: int) -> tuple[HubHit, ...]:
        """Return repositories with these words in their name and all of these tags, popular first.

        Raises: NetworkError, TokenNeeded.
        """
        asked = [("search", query), *(("filter", tag) for tag in tags)]
        asked += [("sort", "downloads"), ("direction", "-1"), ("limit", str(limit))]
        url = f"{self.endpoint}/api/models?{urllib.parse.urlencode([*asked, ('full', 'true')])}"
        try:
            hits = self._json(url, "", list[_Hit])
        except NotOnHub as problem:
            raise NetworkError(
                f"{self.endpoint} offers no search.", "Paste the model's name, OWNER/NAME, instead."
            ) from problem
        except (TokenNeeded, GatedModel) as problem:
            raise TokenNeeded(
                f"{self.endpoint} wants an access token before it answers, or another one.",
                "Enter a token, or choose another hub address in Settings.",
            ) from problem
        return tuple(hit.told() for hit in hits if _NAME.fullmatch(hit.id) and not hit.disabled)

    def small_file(self, repo: str, revision: str, name: str) -> bytes:
        """Return a file that is known to be small, such as config.json.

        Raises: as `repo`.
        """
        check_name(repo)
        at = urllib.parse.quote(revision or "main", safe="")
        return self._read(f"{self.endpoint}/{repo}/resolve/{at}/{name}", repo)

    def repo(self, repo: str, revision: str = "") -> HubRepo:
        """Return commit and files of a repository.

        Raises: TokenNeeded, GatedModel, NotOnHub, NetworkError; InvalidRequest for an odd name.
        """
        check_name(repo)
        at = urllib.parse.quote(revision or "main", safe="")
        url = f"{self.endpoint}/api/models/{repo}/revision/{at}?blobs=true"
        listing = self._json(url, repo, _Listing)
        return HubRepo(repo, listing.sha, tuple(_file(entry) for entry in listing.siblings))

    def open(self, repo: HubRepo, file: HubFile, offset: int) -> HubBody:
        """Ask for a file from an offset on; the answer may start elsewhere (case D-04).

        Raises: as `repo`.
        """
        name = urllib.parse.quote(file.name)
        url = f"{self.endpoint}/{repo.repo}/resolve/{repo.commit}/{name}"
        return self._body(url, repo.repo, offset)

    def lost(self, problem: Exception) -> NetworkError:
        """Return the sentence for a connection that broke."""
        return lost(problem, self._place)

    def _body(self, url: str, repo: str, offset: int) -> HubBody:
        ranged = {"Range": f"bytes={offset}-"} if offset else {}
        answer = self._open(url, repo, ranged)
        return HubBody(answer, _start(answer) if answer.status == 206 else 0)

    def _read(self, url: str, repo: str, headers: dict[str, str] | None = None) -> bytes:
        answer = self._open(url, repo, headers or {})
        try:
            return answer.read(_MAX_LISTING_BYTES)
        except (OSError, http.client.HTTPException) as problem:
            raise lost(problem, self._place) from problem
        finally:
            answer.close()

    def _json(self, url: str, repo: str, kind: type[_T]) -> _T:
        raw = self._read(url, repo)
        try:
            return msgspec.json.decode(raw, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
            raise NetworkError(
                f"{self.endpoint} did not answer as a model hub does.",
                "Check the hub address in Settings; a login page of the network may be in between.",
            ) from problem

    def _open(self, url: str, repo: str, headers: dict[str, str]) -> http.client.HTTPResponse:
        request = urllib.request.Request(
            url, headers={"User-Agent": "freetoken-desktop", **headers}
        )
        if self._token:
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        try:
            answer = self._opener.open(request, timeout=self._timeout_s)
        except urllib.error.HTTPError as problem:
            problem.close()
            raise refused(problem.code, problem.headers, repo, self._place) from problem
        except urllib.error.URLError as problem:
            reason = problem.reason if isinstance(problem.reason, Exception) else problem
            raise lost(reason, self._place) from problem
        except (OSError, http.client.HTTPException) as problem:
            raise lost(problem, self._place) from problem
        return cast("http.client.HTTPResponse", answer)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects; the token goes along only while scheme and host stay the same."""

    def __init__(self, origin: tuple[str, str], token: str) -> None:
        self._origin, self._token = origin, token

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: "Message[str, str]",
        newurl: str,
    ) -> urllib.request.Request | None:
        """Return the next request."""
        new = super().redirect_request(req, fp, code, msg, cast("Any", headers), newurl)
        if new is not None and self._token and urllib.parse.urlsplit(newurl)[:2] == self._origin:
            new.add_unredirected_header("Authorization", f"Bearer {self._token}")
        return new


class _Hit(msgspec.Struct):
    id: str
    sha: str | None = None
    gated: bool | str = False  # "auto" and "manual" say who grants access
    disabled: bool = False
    downloads: int = 0
    tags: tuple[str, ...] = ()

    def told(self) -> HubHit:
        licence = next((tag for tag in self.tags if tag.startswith(_LICENCE)), "")
        return HubHit(
            self.id,
            self.sha or "",
            licence.removeprefix(_LICENCE),
            self.downloads,
            bool(self.gated),
        )


class _Lfs(msgspec.Struct):
    sha256: str = ""
    size: int = 0


class _Sibling(msgspec.Struct, rename="camel"):
    rfilename: str
    size: int | None = None
    blob_id: str = ""
    lfs: _Lfs | None = None


class _Listing(msgspec.Struct):
    sha: str
    siblings: tuple[_Sibling, ...] = ()


def _file(entry: _Sibling) -> HubFile:
    size = -1 if entry.size is None else entry.size
    if entry.lfs is not None and entry.lfs.sha256:
        return HubFile(entry.rfilename, entry.lfs.size or size, entry.lfs.sha256)
    return HubFile(entry.rfilename, size, blob_sha1=entry.blob_id)


def _start(answer: http.client.HTTPResponse) -> int:
    """Return the first offset of "bytes 5-9/10"; 0 if the header makes no sense."""
    text = answer.headers.get("Content-Range", "").removeprefix("bytes").strip()
    first = text.partition("-")[0]
    return int(first) if first.isdecimal() else 0


def check_name(repo: str) -> None:
    """Raise InvalidRequest unless a repository's name is OWNER/NAME, which also names a folder."""
    if not _NAME.fullmatch(repo) or ".." in repo:
        raise InvalidRequest(f"{repo!r} is no repository; it should read OWNER/NAME.")


def _checked(address: str, what: str) -> urllib.parse.SplitResult:
    parts = _parts(address)
    if parts is None:  # not repeated: it may hold a password
        raise InvalidRequest(
            f"The {what} address is none; it should begin with http:// or https://.",
            "Correct it in Settings.",
        )
    return parts


def _parts(address: str) -> urllib.parse.SplitResult | None:
    """Return the parts of an address of HTTP; None if it is none."""
    try:
        parts = urllib.parse.urlsplit(address)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    return parts if is_good else None


def _is_proxy(address: str) -> bool:
    """Whether urllib can use a proxy that the system names; it may lack its scheme."""
    if "://" not in address:
        return "/" not in address and _parts(f"http://{address}") is not None
    return _parts(address) is not None


def _variable(scheme: str) -> str:
    """Return the environment variable that names a proxy, which beats the system's settings."""
    name = f"{scheme}_proxy"
    set_now = [one for one, value in os.environ.items() if value and one.lower() == name]
    return name if name in set_now else "".join(set_now[:1])


def _proxies(proxy: str) -> dict[str, str]:
    if proxy == DIRECT:
        return {}
    return {"http": proxy, "https": proxy} if proxy else urllib.request.getproxies()
