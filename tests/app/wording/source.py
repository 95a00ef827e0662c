"""Reads the source of the app for words: which keys are used, and which literals bypass `tr`."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

APP = Path(__file__).resolve().parents[3] / "app"

# Calls whose text arguments a person reads: name -> positions. Keywords are in _WORDS.
_CALLS = {
    **dict.fromkeys(
        (
            "Label", "Elide", "Button", "Chip", "EmptyState", "LineField", "Toast", "Group", "Row",
            "card_title", "page_head", "set_text", "set_name", "set_tip", "set_unit",
            "setText", "setToolTip", "setStatusTip", "setWindowTitle", "setPlaceholderText",
            "setAccessibleName", "setAccessibleDescription", "setTitle", "setLabelText",
            "setSuffix", "setPrefix",
        ),
        (0,),
    ),
    "Field": (1,),
    "Toggle": (1,),
    "NavItem": (1,),
    "ask": (1, 2, 3, 4),
    "draw_text": (2,),
    "set_state": (1,),
    "getSaveFileName": (1,),
    "getOpenFileName": (1,),
    "getExistingDirectory": (1,),
}  # fmt: skip
_WORDS = {"text", "name", "tip", "sub", "unit", "placeholder", "help_text", "title", "question"}
# Names and units: the same in every language.
_NAMES = re.compile(r"FreeToken( Desktop)?|[KMG]?i?B(/s)?|tok/s|°C|CPU|GPU|OpenAI|%|ms|s|[A-Z]")


@dataclass(frozen=True)
class Use:
    """A place in the source: file, line, what stands there."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text!r}"


def keys(files: list[Path]) -> list[Use]:
    """Return the English key of every `tr` and `tr_count` call."""
    return [
        Use(name, node.lineno, key)
        for name, node in _calls(files)
        for arg in _key_arguments(node)
        if (key := _literal(arg)) is not None
    ]


def faulty_keys(files: list[Path]) -> list[Use]:
    """Return calls of `tr` whose key is no literal, or whose values do not fit its placeholders."""
    faults = []
    for name, node in _calls(files):
        for arg in _key_arguments(node):
            key = _literal(arg)
            if isinstance(arg, ast.Attribute) and arg.attr == "key":
                continue  # of a phrase: its literal is in the catalogue already
            if key is None:
                faults.append(Use(name, node.lineno, f"key is no literal: {ast.unparse(node)}"))
                continue
            given = {keyword.arg for keyword in node.keywords}
            wanted = set(re.findall(r"\{(\w+)[^}]*\}", key)) if node.keywords else set()
            counted = _called(node) == "tr_count"
            if None not in given and wanted - ({"count"} if counted else set()) - given:
                faults.append(Use(name, node.lineno, f"values missing: {key}"))
    return faults


def bare_literals(files: list[Path]) -> list[Use]:
    """Return literals with words that are handed to a person without `tr`."""
    return [
        Use(_name(file), node.lineno, text)
        for file in files
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Call)
        for text in _bare(node)
    ]


def _bare(node: ast.Call) -> Iterator[str]:
    positions = _CALLS.get(_called(node))
    if positions is None:
        return
    arguments = [node.args[i] for i in positions if i < len(node.args)]
    arguments += [word.value for word in node.keywords if word.arg in _WORDS]
    for argument in arguments:
        for part in _texts(argument):
            words = _NAMES.sub("", part)
            if re.search(r"[^\W\d_]{2,}", words):
                yield part


def _texts(node: ast.expr) -> Iterator[str]:
    """Yield the literal texts that an expression may give, but not those inside calls."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        for part in node.values:
            yield from _texts(part)
    elif isinstance(node, ast.IfExp):
        yield from _texts(node.body)
        yield from _texts(node.orelse)
    elif isinstance(node, ast.BoolOp):
        for part in node.values:
            yield from _texts(part)
    elif isinstance(node, ast.BinOp):
        yield from _texts(node.left)
        yield from _texts(node.right)


def _calls(files: list[Path]) -> Iterator[tuple[str, ast.Call]]:
    for file in files:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and _called(node) in ("tr", "tr_count"):
                yield _name(file), node


def _name(file: Path) -> str:
    return str(file.relative_to(APP.parent)) if file.is_relative_to(APP) else file.name


def _key_arguments(node: ast.Call) -> list[ast.expr]:
    return node.args[: 2 if _called(node) == "tr_count" else 1]


def _called(node: ast.Call) -> str:
    function = node.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _literal(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return None
