"""Server: what the local API will offer. It comes with a later version, and the page says so."""

from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QWidget

from app.theme import px
from app.viewmodels.server import CLIENTS, DEFAULT_PORT, ServerViewModel
from app.widgets.buttons import Segmented, Toggle
from app.widgets.cards import Card, EmptyState, Line, card_title, page_head
from app.widgets.chips import Chip
from app.widgets.inputs import Field
from app.widgets.labels import Icon, Label
from app.widgets.layout import Scroll, fixed, hbox, holder, turn, vbox
from app.wording import Phrase, tr

NARROW_BELOW = 760  # px of page width


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


def _access_card() -> Card:
    """Return the card of switch, port, key and network."""
    port = Field(DEFAULT_PORT, "", 84, 1024, 65535, name=tr("Port"))
    port.setGroupSeparatorShown(False)
    api = tr("API on this PC")
    network = tr("Reachable from the network")
    return Card(
        vbox(
            _row(api, tr("OpenAI and Anthropic wire formats"), Toggle(name=api)),
            Line(),
            _row(tr("Port"), tr("Asked for again at the next start"), port),
            Line(),
            _row(tr("Key"), tr("Sent by every client"), Label("–", "meta", "text3")),
            Line(),
            _row(
                network,
                tr("Others could use this machine. A key is then required"),
                Toggle(name=network),
            ),
            None,
            gap=0,
        )
    )


class ServerView(QWidget):
    """The page, in the look it will have, with everything switched off."""

    def __init__(self, vm: ServerViewModel) -> None:
        super().__init__()
        self._vm = vm
        self.clients = Segmented(CLIENTS, name=tr("Client"))
        self.code = Label("", "meta", "text2", mono=True)
        self._cards = hbox((_access_card(), 1), (self._use_card(), 1), gap=10)
        empty = EmptyState(vm.sentence, icon="server", help_text=vm.detail)
        head = page_head(tr("Server"), Chip(tr("Bodies are never kept"), icon="shield"))
        content = holder(
            vbox(
                head,
                self._cards,
                Label(tr("Requests"), "body", "text", 600),
                (Card(vbox(empty)), 1),
                gap=10,
                pad=(20, 12, 20, 14),
            )
        )
        self.setLayout(vbox(Scroll(content), gap=0))
        self.clients.picked.connect(self._show_client)
        self._show_client(0)

    def _use_card(self) -> Card:
        code = Card(vbox(self.code, pad=(14, 11, 14, 12)), fill="code", radius=8)
        note = hbox(
            Icon("info", 14, "text3"),
            (Label(tr("Nothing listens on any port now."), "meta", "text3", wrap=True), 1),
            gap=6,
        )
        return Card(
            vbox(
                card_title(tr("Use it from")),
                hbox(self.clients, None),
                code,
                note,
                None,
                gap=10,
                pad=(16, 12, 16, 12),
            )
        )

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Put the cards below each other where two do not fit."""
        super().resizeEvent(event)
        turn(self._cards, self.width() < px(NARROW_BELOW))

    def _show_client(self, index: int) -> None:
        self.code.set_text("\n".join(self._vm.snippet(CLIENTS[index])))
