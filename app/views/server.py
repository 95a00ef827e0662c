"""Server: what the local API will offer. It comes with a later version, and the page says so."""

from PySide6.QtWidgets import QWidget

from app.widgets.buttons import Segmented, Toggle
from app.widgets.cards import Card, EmptyState, Line, card_title, page_head
from app.widgets.chips import Chip
from app.widgets.inputs import Field
from app.widgets.labels import Icon, Label
from app.widgets.layout import Scroll, fixed, hbox, holder, vbox
from app.wording import Phrase, tr

_SNIPPET = (
    "export OPENAI_BASE_URL=http://127.0.0.1:1919/v1",
    "export OPENAI_API_KEY=ft-…",
    "codex",
)


def _row(name: Phrase, text: Phrase, control: QWidget) -> QWidget:
    """Return a row of the access card; its control cannot be used yet."""
    control.setEnabled(False)
    words = vbox(
        None,
        Label(name, "body", "text3", 500),
        Label(text, "meta", "text3", wrap=True),
        None,
        gap=2,
    )
    return fixed(holder(hbox((words, 1), control, gap=16, pad=(16, 0, 14, 0))), min_height=56)


class ServerView(QWidget):
    """The page, in the look it will have, with everything switched off."""

    def __init__(self) -> None:
        super().__init__()
        access = Card(
            vbox(
                _row(
                    tr("API on this PC"),
                    tr("OpenAI and Anthropic wire formats"),
                    Toggle(name=tr("API on this PC")),
                ),
                Line(),
                _row(
                    tr("Port"),
                    tr("Asked for again at the next start"),
                    Field(1919, "", 84, 1024, 65535, name=tr("Port")),
                ),
                Line(),
                _row(tr("Key"), tr("Sent by every client"), Label("–", "meta", "text3")),
                Line(),
                _row(
                    tr("Reachable from the network"),
                    tr("Others could use this machine. A key is then required"),
                    Toggle(name=tr("Reachable from the network")),
                ),
                None,
                gap=0,
            )
        )
        clients = Segmented(("Codex", "Claude Code", "OpenCode", "curl"), name=tr("Client"))
        clients.setEnabled(False)
        lines = [Label(line, "meta", "text3", mono=True) for line in _SNIPPET]
        code = Card(vbox(*lines, gap=5, pad=(14, 11, 14, 12)), fill="code", radius=8)
        note = hbox(
            Icon("info", 14, "text3"),
            (Label(tr("Nothing listens on any port now."), "meta", "text3", wrap=True), 1),
            gap=6,
        )
        use = Card(
            vbox(
                card_title(tr("Use it from")),
                hbox(clients, None),
                code,
                note,
                None,
                gap=10,
                pad=(16, 12, 16, 12),
            )
        )
        empty = EmptyState(
            tr("The local API comes with a later version."),
            icon="server",
            help_text=tr(
                "Until then the engine can be used from this window and from the command line."
            ),
        )
        head = page_head(tr("Server"), Chip(tr("Bodies are never kept"), icon="shield"))
        content = holder(
            vbox(
                head,
                hbox((access, 1), (use, 1), gap=10),
                Label(tr("Requests"), "body", "text", 600),
                (Card(vbox(empty)), 1),
                gap=10,
                pad=(20, 12, 20, 14),
            )
        )
        self.setLayout(vbox(Scroll(content), gap=0))
