"""One switch for look and language, called by the composition root and the settings page."""

from app.theme import Mode, theme
from app.wording import language, use_language


def use(
    mode: Mode | None = None,
    zoom: float | None = None,
    language_code: str | None = None,
    reduced_motion: bool | None = None,
) -> None:
    """Take new choices; None keeps one, language "" follows the system.

    `theme().changed` is emitted once, when words, fonts, colours and sizes are all in place.
    """
    if language_code is not None:
        use_language(language_code)
    theme().use(mode, zoom, language(), reduced_motion)
