"""What the Qt application begins with."""

import pytest

from app.application import choose_input_methods


@pytest.mark.parametrize(
    ("before", "modules"),
    [
        ({"QT_IM_MODULE": "fcitx"}, "fcitx;ibus;compose"),
        ({"QT_IM_MODULE": "ibus"}, "ibus;compose"),
        ({"QT_IM_MODULE": "fcitx", "QT_IM_MODULES": "wayland;fcitx"}, "wayland;fcitx"),
        ({}, None),
    ],
    ids=["not in Qt's wheels", "named already", "the desktop's own list", "Qt's own choice"],
)
def test_input_methods_when_the_desktop_names_one_then_others_stand_behind_it(
    before: dict[str, str], modules: str | None
) -> None:
    """Somebody who types Chinese with fcitx 5 can do so in a packaged app."""
    environ = dict(before)
    choose_input_methods(environ)
    assert environ.get("QT_IM_MODULES") == modules
