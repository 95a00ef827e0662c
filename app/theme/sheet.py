"""The style sheet for what Qt draws itself: scroll bars, menus, lists, tool tips, text fields.

Everything else paints itself from the tokens. Pure text; called by `Theme`.
"""

from collections.abc import Callable


def style_sheet(color: Callable[[str], str], zoom: float) -> str:
    """Return the style sheet; `color` gives a role's value, `zoom` scales lengths."""

    def z(value: float) -> str:
        return f"{round(value * zoom)}px"

    c = color
    return f"""
    QWidget#canvas {{ background: {c("canvas")}; }}
    QDialog#dialog {{ background: {c("overlay")}; border: 1px solid {c("control")}; }}
    QWidget#rail {{ background: {c("rail")}; }}
    QScrollArea {{ background: transparent; border: none; }}
    QWidget#scrolled {{ background: transparent; }}
    QLineEdit, QPlainTextEdit, QTextEdit {{ background: transparent; border: none;
        color: {c("text")}; selection-background-color: {c("accent")};
        selection-color: {c("accentInk")}; padding: 0; }}
    QAbstractSpinBox {{ background: transparent; border: none; }}
    QAbstractSpinBox::up-button, QAbstractSpinBox::down-button {{ width: {z(20)}; }}
    QScrollBar:vertical {{ background: transparent; width: {z(10)}; margin: 2px; }}
    QScrollBar:horizontal {{ background: transparent; height: {z(10)}; margin: 2px; }}
    QScrollBar::handle {{ background: {c("control")}; border-radius: {z(3)}; }}
    QScrollBar::handle:hover {{ background: {c("text3")}; }}
    QScrollBar::handle:vertical {{ min-height: {z(32)}; }}
    QScrollBar::handle:horizontal {{ min-width: {z(32)}; }}
    QScrollBar::add-line, QScrollBar::sub-line {{ width: 0; height: 0; border: none; }}
    QScrollBar::add-page, QScrollBar::sub-page {{ background: none; }}
    QAbstractScrollArea::corner {{ background: transparent; }}
    QToolTip {{ background: {c("tooltip")}; color: {c("onTooltip")};
        border: 1px solid {c("control")}; padding: {z(4)} {z(7)}; }}
    QMenu {{ background: {c("overlay")}; color: {c("text")}; border: 1px solid {c("control")};
        border-radius: {z(8)}; padding: {z(5)}; }}
    QMenu::item {{ padding: {z(6)} {z(22)} {z(6)} {z(12)}; border-radius: {z(5)};
        background: transparent; }}
    QMenu::item:selected {{ background: {c("selected")}; }}
    QMenu::item:disabled {{ color: {c("text3")}; }}
    QMenu::separator {{ height: 1px; background: {c("line")}; margin: {z(4)} {z(6)}; }}
    QMenu::icon {{ padding-left: {z(6)}; }}
    QTableView {{ background: {c("surface")}; color: {c("text")}; border: 1px solid {c("line")};
        selection-background-color: {c("selected")}; selection-color: {c("text")}; outline: none; }}
    QTableView::item {{ padding: 0 {z(8)}; border: none; border-bottom: 1px solid {c("line")}; }}
    QHeaderView {{ background: {c("surface")}; border: none; }}
    QHeaderView::section {{ background: {c("surface")}; color: {c("text2")}; border: none;
        border-bottom: 1px solid {c("control")}; padding: {z(6)} {z(8)}; }}
    QComboBox QAbstractItemView {{ background: {c("overlay")}; color: {c("text")};
        border: 1px solid {c("control")}; padding: {z(4)}; outline: none;
        selection-background-color: {c("selected")}; selection-color: {c("text")}; }}
    QComboBox QAbstractItemView::item {{ min-height: {z(26)}; padding-left: {z(6)}; }}
    """
