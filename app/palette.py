"""Puts the palette over the window: what it offers, and where its choices lead."""

from app.pages import Pages
from app.viewmodels.chat_list import ChatListModel
from app.viewmodels.palette import Entry, PaletteViewModel
from app.viewmodels.session import SessionViewModel
from app.views.main_window import MainWindow
from app.views.palette import Palette, fixed_entries


def make_palette(
    window: MainWindow, pages: Pages, chats: ChatListModel, session: SessionViewModel
) -> Palette:
    """Return the palette of a window, wired to its pages, actions, settings, models and chats."""

    def models() -> list[Entry]:
        return [Entry("model", m.name, m.facts, m.path) for m in session.models]

    def open_chat(chat_id: int, message_id: int) -> None:
        window.show_page("chat")
        pages.chat.open_at(chat_id, message_id)
        pages.chat.composer.focus()

    def open_setting(section: str) -> None:
        window.show_page("settings")
        pages.settings.open_section(section)

    vm = PaletteViewModel(fixed_entries(), models, chats.chats, chats.find)
    palette = Palette(window, vm)
    vm.setParent(palette)
    window.palette_wanted.connect(palette.toggle)
    palette.page_chosen.connect(window.show_page)
    palette.action_chosen.connect(lambda name: window.actions_by_id[name].trigger())
    palette.setting_chosen.connect(open_setting)
    palette.model_chosen.connect(session.load)
    palette.chat_chosen.connect(open_chat)
    return palette
