"""A code block: head with language, lines, Wrap, Copy; the code in colours; long ones folded.

While it streams, text is only appended and, once it is long, its last lines are shown; colours
come when it closes.
"""

from PySide6.QtCore import QSize, Qt, QTimer
from PySide6.QtGui import (
    QGuiApplication,
    QTextCursor,
    QTextOption,
    QWheelEvent,
)
from PySide6.QtWidgets import QFrame, QPlainTextEdit, QSizePolicy

from app.theme import color, follow, font, px
from app.widgets import Button, Card, Label, Line, fixed, hbox, holder, vbox
from app.widgets.chat.blocks import Code
from app.widgets.chat.highlight import CodeColors
from app.wording import tr, tr_count

FOLD_OVER, FOLD_TO = 24, 18
TICK_MS = 1_200
_NAMES = {
    "py": "Python", "python": "Python", "js": "JavaScript", "javascript": "JavaScript",
    "ts": "TypeScript", "sh": "Shell", "bash": "Bash", "c": "C", "cpp": "C++", "cs": "C#",
    "csharp": "C#", "html": "HTML", "css": "CSS", "json": "JSON", "sql": "SQL", "yaml": "YAML",
    "yml": "YAML", "toml": "TOML", "xml": "XML", "rust": "Rust", "rs": "Rust", "go": "Go",
    "java": "Java", "md": "Markdown", "text": "", "txt": "", "plaintext": "",
}  # fmt: skip


class CodeText(QPlainTextEdit):
    """The code itself: read-only, as high as its lines, the wheel belongs to the page."""

    def __init__(self) -> None:
        super().__init__()
        self.setReadOnly(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded)
        self.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.setWordWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self.setUndoRedoEnabled(False)
        self.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse
            | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self.setTabChangesFocus(True)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.viewport().setAutoFillBackground(False)
        self.document().setDocumentMargin(0)

    def append_text(self, text: str) -> None:
        """Add text at the end without touching a selection."""
        cursor = QTextCursor(self.document())
        cursor.movePosition(QTextCursor.MoveOperation.End)
        cursor.insertText(text)

    def visual_lines(self) -> int:
        """Lines on screen: with wrapping, long lines count several times."""
        if self.lineWrapMode() == QPlainTextEdit.LineWrapMode.NoWrap:
            return self.blockCount()
        count, block = 0, self.document().firstBlock()
        while block.isValid():
            self.document().documentLayout().blockBoundingRect(block)  # lays the block out
            count += max(1, block.layout().lineCount())
            block = block.next()
        return count

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Sideways here, up and down on the page."""
        if abs(event.angleDelta().x()) > abs(event.angleDelta().y()):
            super().wheelEvent(event)
        else:
            event.ignore()

    def sizeHint(self) -> QSize:
        """The layout decides; see `CodeBlock`."""
        return QSize(px(200), self.minimumHeight())


class CodeBlock(Card):
    """One code block. `set_block` takes a grown or closed one."""

    def __init__(self, block: Code) -> None:
        self._block = Code("", "", is_closed=False)
        self._unfolded = False
        self._language = Label("", "caption", "text2", 500)
        self._count = Label("", "caption", "text3")
        self.wrap = Button(tr("Wrap"), "ghost", "wrap", small=True)
        self.wrap.setCheckable(True)
        self.copy_button = Button(tr("Copy"), "ghost", "copy", small=True)
        head = hbox(
            self._language, self._count, None, self.wrap, self.copy_button, gap=6, pad=(14, 0, 6, 0)
        )
        self.text = CodeText()
        self.more = Button("", "ghost", "down", small=True)
        self._foot = holder(hbox(self.more, None, pad=(8, 0, 8, 6)))
        self._foot.hide()
        self._well = holder(vbox(self.text, pad=(14, 9, 14, 10)))
        layout = vbox(fixed(holder(head), height=30), Line(), self._well, self._foot, gap=0)
        super().__init__(layout, fill="code", radius=8)
        self._colors = CodeColors(self.text.document())
        self._tick = QTimer(self)
        self._tick.setSingleShot(True)
        self._tick.setInterval(TICK_MS)
        self._tick.timeout.connect(self._untick)
        self.wrap.toggled.connect(self._set_wrap)
        self.copy_button.clicked.connect(self.copy)
        self.more.clicked.connect(self._toggle_fold)
        self.set_block(block)
        follow(self.retheme)

    @property
    def block(self) -> Code:
        """What is shown."""
        return self._block

    def set_block(self, block: Code) -> None:
        """Show a block; text that only grew is appended."""
        old, self._block = self._block, block
        if block.text.startswith(old.text):
            self.text.append_text(block.text[len(old.text) :])
        else:
            self.text.setPlainText(block.text)
        if block.is_closed and not (old.is_closed and old.text == block.text):
            self._colors.start(block.text, block.language)
        self._relabel()
        self._fit()

    def copy(self) -> None:
        """Put the whole code on the clipboard; a tick says so."""
        QGuiApplication.clipboard().setText(self._block.text)
        self.copy_button.set_icon("check")
        self.copy_button.set_text(tr("Copied"))
        self._tick.start()

    def retheme(self) -> None:
        """Take font, ink and colours from the present theme."""
        face = font("meta", 400, mono=True)
        self.text.setFont(face)
        self.text.setTabStopDistance(4 * self.text.fontMetrics().horizontalAdvance(" "))
        palette = self.text.palette()
        palette.setColor(palette.ColorRole.Text, color("text"))
        self.text.setPalette(palette)
        self._colors.retheme()
        self._relabel()
        self._fit()

    def _relabel(self) -> None:
        language = self._block.language
        shown = _NAMES.get(language.lower(), language)
        self._language.set_text(shown or tr("Code"))
        lines = self.text.blockCount()
        self._count.set_text(tr_count("{count} line", "{count} lines", lines))
        self.text.setAccessibleName(tr("Code, {language}", language=shown or tr("Text")))
        self.more.set_text(
            tr("Show less")
            if self._unfolded
            else tr_count("Show {count} line", "Show all {count} lines", lines)
        )
        self.more.set_icon("up" if self._unfolded else "down")

    def _fit(self) -> None:
        """Give the text the height of its lines, or of the fold."""
        lines = self.text.visual_lines()
        is_long = lines > FOLD_OVER
        self._foot.setVisible(is_long)
        shown = lines if self._unfolded or not is_long else FOLD_TO
        spacing = self.text.fontMetrics().lineSpacing()
        bar = self.text.horizontalScrollBar()
        extra = bar.sizeHint().height() if bar.maximum() > 0 else 0
        height = shown * spacing + extra + 2
        if height != self.text.height() or self.text.minimumHeight() != height:
            self.text.setFixedHeight(height)
        if is_long and not self._unfolded:
            scroll = self.text.verticalScrollBar()
            scroll.setValue(0 if self._block.is_closed else scroll.maximum())

    def _set_wrap(self, on: bool) -> None:
        mode = QPlainTextEdit.LineWrapMode
        self.text.setLineWrapMode(mode.WidgetWidth if on else mode.NoWrap)
        self._fit()

    def _toggle_fold(self) -> None:
        self._unfolded = not self._unfolded
        self._relabel()
        self._fit()

    def _untick(self) -> None:
        self.copy_button.set_icon("copy")
        self.copy_button.set_text(tr("Copy"))
