"""The language in use and its catalogue, kept on the application object.

Without an application (pure tests) everything is English.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from PySide6.QtCore import QCoreApplication, QLocale, QObject

from engine.protocol.places import resources_dir

_PROPERTY = "freetokenLanguage"
_ACCENTS = str.maketrans("aeiounscyAEIOUNSCY", "áéîöûñšçýÅÉÎÖÛÑŠÇÝ")
_PLACEHOLDER = re.compile(r"(\{[^}]*\})")


@dataclass(frozen=True, slots=True)
class Language:
    """A language that can be chosen; `name` is written in the language itself."""

    code: str
    name: str


LANGUAGES = (Language("en", "English"), Language("zh_CN", "简体中文"))


class _Catalogue(QObject):
    """The catalogue in use; a child of the application, so that it lives as long as that."""

    def __init__(self, parent: QObject, code: str, texts: Mapping[str, str]) -> None:
        super().__init__(parent)
        self.code = code
        self.texts = texts


def use_language(code: str) -> None:
    """Speak `code` from now on; "" = the system's language, an unknown one = English.

    Raises:
        RuntimeError: there is no application yet.
    """
    app = QCoreApplication.instance()
    if app is None:
        raise RuntimeError("A language needs an application.")
    code = code or _system_code()
    path = resources_dir() / "i18n" / f"{code}.json"
    texts: dict[str, str] = {}
    if code not in ("en", "pseudo") and path.is_file():
        texts = json.loads(path.read_text("utf-8"))
    elif code != "pseudo":
        code = "en"
    former = _catalogue()
    app.setProperty(_PROPERTY, _Catalogue(app, code, texts))
    if former is not None:
        former.deleteLater()


def language() -> str:
    """Return the code of the language in use."""
    catalogue = _catalogue()
    return catalogue.code if catalogue else "en"


def lookup(key: str) -> str:
    """Return the template for an English template; itself where no translation exists."""
    catalogue = _catalogue()
    if catalogue is None or catalogue.code == "en":
        return key
    if catalogue.code == "pseudo":
        return pseudo(key)
    return catalogue.texts.get(key, key)


def pseudo(key: str) -> str:
    """Return `key` with accents and about 30 % longer; placeholders stay."""
    parts = _PLACEHOLDER.split(key)
    words = [part if index % 2 else part.translate(_ACCENTS) for index, part in enumerate(parts)]
    longer = max(1, round(0.3 * sum(map(len, parts[::2]))))
    return "".join(words) + "·" * longer if key else key


def _catalogue() -> _Catalogue | None:
    app = QCoreApplication.instance()
    found = app.property(_PROPERTY) if app else None
    return found if isinstance(found, _Catalogue) else None


def _system_code() -> str:
    known = {entry.code for entry in LANGUAGES}
    name = QLocale.system().name()  # "zh_CN"
    if name in known:
        return name
    return next((code for code in known if code.split("_")[0] == name.split("_")[0]), "en")
