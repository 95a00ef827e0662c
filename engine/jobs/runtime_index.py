"""A package index over HTTP: where a wheel lies, and its bytes.

An index is what pip calls one: `ADDRESS/NAME/` lists the files of a package, as JSON or as a page
of links. Addresses come with the job; a lock names only files and hashes, so what an index or
mirror sends is either the file that was locked, or refused. Called by `engine.jobs.runtime`.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from engine.jobs.hub import Hub, HubBody, HubFile, HubRepo
from engine.protocol.errors import (
    EngineError,
    GatedModel,
    InvalidRequest,
    NetworkError,
    NotOnHub,
    TokenNeeded,
)
from engine.protocol.runtime_lock import Wheel

_JSON = "application/vnd.pypi.simple.v1+json"
_ACCEPT = f"{_JSON}, text/html;q=0.5"


@dataclass(frozen=True, slots=True)
class Indexes:
    """Where to look.

    Attributes:
        mirror: an index that has everything; every request goes there. "" = none.
        channels: address by the channel of a wheel; "" is the usual one.
        proxy: as in `Hub`.
    """

    mirror: str = ""
    channels: Mapping[str, str] = field(default_factory=dict)
    proxy: str = ""

    def address(self, wheel: Wheel) -> str:
        """Return the index for a wheel. Raises: InvalidRequest if none is known."""
        address = self.mirror or self.channels.get(wheel.channel, "")
        if not address:
            raise InvalidRequest(
                f"No package index is known for {wheel.file}.",
                "Enter the address of one, or choose an offline bundle.",
            )
        return address


class WheelIndex(Hub):
    """One index, asked for the files of one lock."""

    def __init__(self, address: str, proxy: str = "") -> None:
        super().__init__(address, proxy)
        self._links: dict[str, dict[str, str]] = {}

    def open(self, repo: HubRepo, file: HubFile, offset: int) -> HubBody:
        """Ask for a wheel from an offset on; `repo.repo` is the package's name.

        Raises: NetworkError, its hint says what to do.
        """
        try:
            url = self._url(repo.repo, file.name)
            return self._body(url, repo.repo, offset)
        except NotOnHub as problem:
            raise self._absent(file.name) from problem
        except (TokenNeeded, GatedModel) as problem:
            raise NetworkError(
                f"{self.endpoint} wants a login, or does not give {file.name} to everybody.",
                "Choose another index, or an offline bundle.",
            ) from problem

    def _url(self, package: str, file: str) -> str:
        links = self._links.get(package)
        if links is None:
            page = f"{self.endpoint}/{re.sub(r'[-_.]+', '-', package).lower()}/"
            links = read_links(self._read(page, package, {"Accept": _ACCEPT}), page)
            self._links[package] = links
        if file not in links:
            raise self._absent(file)
        return links[file]

    def _absent(self, file: str) -> EngineError:
        return NetworkError(
            f"{self.endpoint} does not have {file}.",
            "Choose another index, or an offline bundle; or update the app.",
        )


def read_links(page: bytes, address: str) -> dict[str, str]:
    """Return address by file name of an index page, JSON or HTML.

    Raises: NetworkError if it is neither.
    """
    text = page.decode("utf-8", "replace")
    if text.lstrip().startswith("{"):
        found = _json_links(text)
    else:
        reader = _Anchors()
        reader.feed(text)
        found = reader.hrefs or None
    if found is None:
        raise NetworkError(
            f"{address} did not answer as a package index does.",
            "Check the address; a login page of the network may be in between.",
        )
    links = {}
    for href in found:
        url = urljoin(address, href).partition("#")[0]
        if urlsplit(url).scheme in ("http", "https"):
            links[unquote(urlsplit(url).path.rpartition("/")[2])] = url
    return links


def _json_links(text: str) -> list[str] | None:
    try:
        listing: Any = json.loads(text)
        return [str(entry["url"]) for entry in listing["files"]]
    except (ValueError, KeyError, TypeError):
        return None


class _Anchors(HTMLParser):
    """Collects where the links of a page lead."""

    def __init__(self) -> None:
        super().__init__()
        self.hrefs: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take one link."""
        href = dict(attrs).get("href")
        if tag == "a" and href:
            self.hrefs.append(href)
