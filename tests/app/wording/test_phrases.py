"""Phrases: said, remembered, said again."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtWidgets import QApplication

from app.widgets.look import use
from app.wording import LANGUAGES, again, language, tr, tr_count, use_language
from app.wording.language import pseudo

pytestmark = pytest.mark.usefixtures("looks")


def test_tr_with_values_then_they_fill_the_text() -> None:
    """The plain case."""
    assert tr("Context {figures} tokens", figures="18K") == "Context 18K tokens"


def test_tr_without_a_value_then_it_says_which() -> None:
    """A forgotten value is a fault of ours, found at once."""
    with pytest.raises(KeyError, match="figures"):
        tr("Context {figures} tokens", other=1)


def test_tr_without_values_then_braces_are_data() -> None:
    """A text without values is taken as it is."""
    assert tr("set {a}") == "set {a}"


def test_again_after_a_switch_then_the_phrase_speaks_the_new_language() -> None:
    """What a widget does with the text it was given."""
    phrase = tr("Context {figures} tokens", figures="18K")
    use(language_code="zh_CN")
    assert again(phrase) == "上下文 18K 词元"
    use(language_code="en")
    assert again(again(phrase)) == "Context 18K tokens"


def test_again_when_a_value_is_a_phrase_then_it_is_said_anew_too() -> None:
    """ "Go to {page}" names the page in the new language."""
    phrase = tr("Go to {page}", page=tr("Models"))
    use(language_code="zh_CN")
    assert again(phrase) == "前往模型"


def test_again_with_data_then_it_is_returned_as_it_is() -> None:
    """File names and model output are never translated."""
    use(language_code="pseudo")
    assert again("Chat") == "Chat"


def test_tr_count_then_one_and_many_differ() -> None:
    """English has two forms."""
    lines = ("{count} line", "{count} lines")
    assert tr_count(*lines, 1) == "1 line"
    assert tr_count(*lines, 1200) == "1,200 lines"


def test_use_language_when_unknown_then_english(qapp: QApplication) -> None:
    """A settings file of a newer version may name one that we do not have."""
    use_language("xx_YY")
    assert language() == "en"


def test_use_language_when_system_then_a_known_one(qapp: QApplication) -> None:
    """ "" follows the system."""
    use_language("")
    assert language() in {entry.code for entry in LANGUAGES}


@given(st.text("abc e{}xyzn 12", max_size=60))
def test_pseudo_then_placeholders_stay_and_text_grows(text: str) -> None:
    """Layout tests with it are as hard as German."""
    longer = pseudo(text)
    assert re.findall(r"\{[^}]*\}", longer) == re.findall(r"\{[^}]*\}", text)
    assert len(longer) > len(text) or not text
