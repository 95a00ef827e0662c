"""The chat page: list, reading column with composer, inspector; binds widgets and view model.

Layout at 1180 x 760: list 212, column at most 720 in the middle, inspector 260 on demand. Narrow
windows lose first the inspector, then the list; the composer stays (case G-22).
"""

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication, QResizeEvent
from PySide6.QtWidgets import QWidget

from app.services.chat_records import Chat, ChatId, Message, MessageId
from app.services.chat_words import notice_text
from app.theme import SIZE, px, theme
from app.viewmodels.chat import ChatViewModel
from app.viewmodels.session_words import lost_engine
from app.views.chat_dialogs import ChatDialogs
from app.views.chat_inspector import InspectorLink
from app.widgets import Button, Elide, Line, fixed, hbox, holder, vbox
from app.widgets.chat.cards import CrashCard, NoticeBar
from app.widgets.chat.chat_list import ChatListPanel
from app.widgets.chat.column import MessageColumn
from app.widgets.chat.composer import Composer, Writing
from app.widgets.chat.empty import EmptyChat
from app.widgets.chat.inspector import Inspector
from app.widgets.chat.message import Place
from app.widgets.layout import Scroll
from app.widgets.toasts import Toasts
from app.wording import tr

LIST_FROM = 660  # px of this page at 100 %: narrower, the list folds
INSPECTOR_FROM = 860  # narrower, the inspector takes the place of the list


FOOT_PAD = (32, 6, 32, 8)


class ChatView(QWidget):
    """The page. It tells by itself how the engine ended, see `CrashCard`."""

    def __init__(self, vm: ChatViewModel) -> None:
        super().__init__()
        self._vm = vm
        self._wants_list, self._wants_inspector = True, False
        self._crash: CrashCard | None = None
        self.list = fixed(ChatListPanel(), width=SIZE["chatList"])
        self.inspector = fixed(Inspector(), width=SIZE["inspector"])
        self.title = Elide("", "section", "text", 600)
        self.show_list = Button("", "ghost", "sidebar", name=tr("Show or hide the list of chats"))
        self.new = Button("", "ghost", "plus", name=tr("New chat"))
        self.show_inspector = Button("", "ghost", "panel", name=tr("Show or hide the inspector"))
        self.notice = NoticeBar()
        self.column = MessageColumn(self._place_of)
        self.empty = EmptyChat()
        self.composer = Composer()
        self._list_line, self._inspector_line = Line(vertical=True), Line(vertical=True)
        self._blank = self._blank_page()
        self.setLayout(
            hbox(
                self.list,
                self._list_line,
                (self._centre(), 1),
                self._inspector_line,
                self.inspector,
                gap=0,
            )
        )
        # Narrower than list, column and inspector together: then the sides fold, see `_arrange`.
        fixed(self, min_width=360, min_height=240)
        self.toasts = Toasts(self)
        self._dialogs = ChatDialogs(self, vm.files)
        self._link = InspectorLink(self.inspector, vm)
        self._connect_talk()
        self._connect_rest()
        self._connect_widgets()
        self._on_list()
        self._on_opened()
        self._on_engine()
        self._on_notice()
        self._arrange()
        self.composer.edit.setFocus(Qt.FocusReason.OtherFocusReason)

    # --- building -------------------------------------------------------------------------------

    def _centre(self) -> QWidget:
        head = hbox(
            (self.title, 1),
            self.new,
            self.show_list,
            self.show_inspector,
            gap=6,
            pad=(32, 0, 12, 0),
        )
        foot = fixed(holder(vbox(self.notice, self.composer, gap=8)), max_width=SIZE["chatColumn"])
        self._foot = hbox("flex", (foot, 1), "flex", gap=0, pad=FOOT_PAD)
        bar = fixed(holder(head), height=44)
        rows = vbox(bar, (self._blank, 1), (self.column, 1), self._foot, gap=0)
        return holder(rows, "canvas")

    def _blank_page(self) -> QWidget:
        inner = fixed(holder(vbox(self.empty)), max_width=SIZE["chatColumn"])
        row = hbox("flex", (inner, 1), "flex", gap=0, pad=(32, 8, 32, 8))
        column = vbox(None, row, (QWidget(), 2), gap=8)
        return Scroll(holder(column))

    def _connect_talk(self) -> None:
        talk = self._vm.talk
        talk.opened.connect(self._on_opened)
        talk.path_changed.connect(self._on_path)
        talk.message_changed.connect(self._on_message)
        talk.grew.connect(self._on_message)
        talk.state_changed.connect(self._on_state)
        talk.deleted.connect(self._on_deleted)
        talk.draft_replaced.connect(self._on_draft)
        talk.files_changed.connect(self._on_state)

    def _connect_rest(self) -> None:
        vm = self._vm
        vm.chats.changed.connect(self._on_list)
        vm.chats.deleted.connect(self._on_chat_deleted)
        vm.engine_changed.connect(self._on_engine)
        vm.options_changed.connect(self._on_options)
        vm.context.changed.connect(self._on_state)
        vm.noticed.connect(self._on_notice)
        self.notice.closed.connect(vm.dismiss_notice)
        self.empty.prompted.connect(self._use_prompt)
        self.empty.model.load_wanted.connect(vm.load_requested)
        self.empty.model.models_wanted.connect(self._to_models)
        self.inspector.closed.connect(self._toggle_inspector)

    def _connect_widgets(self) -> None:
        vm, talk = self._vm, self._vm.talk
        self.list.searched.connect(vm.chats.set_query)
        self.list.new_wanted.connect(self._new_chat)
        self.list.opened.connect(self._open_chat)
        self.list.deleted.connect(vm.delete_chat)
        self.list.renamed.connect(vm.rename_chat)
        self.list.pinned.connect(vm.set_pinned)
        self.list.exported.connect(self._dialogs.export_chat)
        self.list.import_wanted.connect(self._dialogs.import_chats)
        self.list.dropped.connect(vm.files.import_chats)
        self.new.clicked.connect(self._new_chat)
        self.show_list.clicked.connect(self._toggle_list)
        self.show_inspector.clicked.connect(self._toggle_inspector)
        self.composer.typed.connect(vm.set_draft)
        self.composer.sent.connect(self._send)
        self.composer.stopped.connect(talk.stop)
        self.composer.taken_back.connect(talk.unqueue)
        self.composer.asked_last.connect(self._edit_last)
        self.composer.dropped.connect(vm.files.attach)
        self.composer.files_wanted.connect(self._dialogs.attach)
        self.composer.detached.connect(vm.files.detach)
        self.composer.reasoned.connect(vm.set_reasoning)
        self.column.edited.connect(talk.edit)
        self.column.retried.connect(talk.regenerate)
        self.column.continued.connect(talk.continue_reply)
        self.column.deleted.connect(talk.delete)
        self.column.switched.connect(self._switch)
        self.column.page_wanted.connect(vm.page_requested)
        column = self.column
        for done in (column.edited, column.retried, column.continued, column.deleted):
            done.connect(self.composer.focus)  # what was pressed is gone
        self.column.verticalScrollBar().rangeChanged.connect(self._align_foot)

    # --- shortcuts ------------------------------------------------------------------------------

    def shortcut(self, name: str) -> bool:
        """Do what the table of shortcuts says; False if there is nothing to do."""
        steps = {
            "new_chat": self._new_chat,
            "composer": self.composer.focus,
            "inspector": self._toggle_inspector,
            "context": self._show_context,
            "copy_reply": self._copy_reply,
            "retry": self._vm.talk.retry_last,
            "edit_last": self._edit_last,
            "search": self._focus_search,
            "import_chats": self._dialogs.import_chats,
        }
        if name not in steps:
            return False
        steps[name]()
        return True

    def _focus_search(self) -> None:
        self._wants_list = True
        self._arrange()
        self.list.search.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.list.search.selectAll()

    def _copy_reply(self) -> None:
        replies = (m for m in reversed(self._vm.talk.messages) if m.role == "assistant")
        reply = next(replies, None)
        shown = self._vm.talk.message(reply.id) if reply is not None else None
        if shown is not None and shown.text:
            QGuiApplication.clipboard().setText(shown.text)
            self.toasts.show(tr("Reply copied"))

    def _edit_last(self) -> None:
        view = self.column.last_view("user")
        if view is not None:
            view.begin_edit()

    def _show_context(self) -> None:
        self._wants_inspector = True
        self._arrange()

    # --- what the person does -------------------------------------------------------------------

    def _new_chat(self) -> None:
        self._leave()
        self._vm.new_chat()
        self.composer.focus()

    def _open_chat(self, chat_id: int) -> None:
        self.open_at(chat_id, self._vm.chats.place_of(ChatId(chat_id)) or 0)

    def open_at(self, chat_id: int, message_id: int = 0) -> None:
        """Show a chat, and in it the message that a search found."""
        self._leave()
        self._vm.open_chat(ChatId(chat_id), MessageId(message_id))
        if message_id:
            self.column.reveal(message_id)

    def _leave(self) -> None:
        """Hand on what is typed before another chat comes on screen."""
        self.inspector.flush()

    def _send(self, text: str) -> None:
        self.inspector.flush()
        self._vm.send(text)

    def _switch(self, message_id: int, step: int) -> None:
        """Show another version; the arrow that was pressed stays under the keyboard."""
        place = [message.id for message in self._vm.talk.messages].index(MessageId(message_id))
        self._vm.talk.switch(MessageId(message_id), step)
        view = self.column.views.get(self._vm.talk.messages[place].id)
        if view is not None:
            view.bar.take_focus(step)

    def _use_prompt(self, text: str) -> None:
        self.composer.set_text(text)
        self.composer.focus()

    def _to_models(self) -> None:
        self._vm.page_requested.emit("models")

    def _to_logs(self) -> None:
        self._vm.page_requested.emit("logs")

    # --- what the view model says ---------------------------------------------------------------

    def _place_of(self, message: Message) -> Place:
        talk = self._vm.talk
        versions = talk.versions(message)
        is_last = bool(talk.messages) and talk.messages[-1].id == message.id
        return Place(
            version=versions.index(message.id) + 1 if message.id in versions else 1,
            versions=max(1, len(versions)),
            is_running=self._vm.runner.reply_of(message.id) is not None,
            is_waiting=is_last and talk.is_waiting and message.role == "assistant",
            is_last=is_last,
            now=self._vm.now,
        )

    def _shown_messages(self) -> list[Message]:
        talk = self._vm.talk
        return [talk.message(message.id) or message for message in talk.messages[-2:]]

    def _on_opened(self) -> None:
        talk = self._vm.talk
        path = [*talk.messages[:-2], *self._shown_messages()]
        self.column.open(path)
        self.composer.set_text(talk.chat.draft)
        self.list.set_current(talk.chat.id)
        self._on_options()
        self._on_state()

    def _on_path(self) -> None:
        self.column.set_messages([*self._vm.talk.messages[:-2], *self._shown_messages()])
        self._on_state()

    def _on_message(self, message_id: int) -> None:
        message = self._vm.talk.message(message_id)
        if message is not None:
            self.column.update_message(message)

    def _on_state(self) -> None:
        talk = self._vm.talk
        is_empty = not talk.messages
        self._blank.setVisible(is_empty)
        self.column.setVisible(not is_empty)
        self.column.update_places()
        self._align_foot(0, self.column.verticalScrollBar().maximum())
        self.composer.set_writing(
            Writing(
                model=self._vm.model_name,
                is_coming=self._vm.coming is not None,
                is_replying=talk.is_replying,
                is_waiting=talk.is_waiting,
                queued=talk.queued.words,
                draft_tokens=self._vm.context.draft_tokens,
                files=talk.chat.files,
                reasoning=talk.chat.reasoning,
            )
        )
        self._show_crash()

    def _on_draft(self) -> None:
        self.composer.set_text(self._vm.talk.chat.draft)
        self.composer.focus()

    def _on_list(self) -> None:
        self.list.set_sections(self._vm.chats.sections, self._vm.chats.query)
        self.list.set_current(self._vm.talk.chat.id)

    def _on_options(self) -> None:
        chat = self._vm.talk.chat
        self.title.set_text(chat.title or tr("New chat"))

    def _on_engine(self) -> None:
        vm = self._vm
        coming = vm.coming
        if coming is not None:
            self.empty.model.set_coming(coming.name, coming.doing, coming.share)
        else:
            self.empty.model.set_model(vm.model_name, vm.model_quant)
        self.empty.model.setVisible(vm.crash is None)  # its card has the ways on
        self._on_state()

    def _show_crash(self) -> None:
        """How the engine ended, below the last message, until it is back."""
        outcome = self._vm.crash
        if self._crash is not None and outcome is not self._crash.outcome:
            self._crash.hide()
            self._crash.setParent(None)
            self._crash.deleteLater()
            self._crash = None
        if outcome is None:
            return
        if self._crash is None:
            problem = lost_engine(outcome, too_often=False)
            self._crash = CrashCard(outcome, problem.hint, problem.can_shrink)
            self._crash.restart_wanted.connect(self._vm.restart_requested)
            self._crash.log_wanted.connect(self._to_logs)
        place = self.column.foot if self._vm.talk.messages else self.empty.place
        if place.indexOf(self._crash) < 0:
            place.addWidget(self._crash)

    def _on_notice(self) -> None:
        notice = self._vm.notice
        self.notice.set_text(notice_text(notice) if notice is not None else "")

    def _on_deleted(self, message_id: int) -> None:
        self.toasts.show(
            tr("Message deleted"),
            "info",
            tr("Undo"),
            lambda: self._vm.talk.undo_delete(MessageId(message_id)),
        )

    def _on_chat_deleted(self, chat: Chat) -> None:
        words = tr("Deleted: {title}", title=chat.title or tr("New chat"))
        self.toasts.show(words, "info", tr("Undo"), self._vm.chats.undo_delete)

    # --- room -----------------------------------------------------------------------------------

    def _align_foot(self, _low: int = 0, high: int = 0) -> None:
        """Composer and column share their edges, scroll bar or not."""
        bar = self.column.verticalScrollBar()
        has_bar = high > 0 and not self.column.isHidden()
        room = round(bar.sizeHint().width() / theme().zoom) if has_bar else 0
        left, top, right, bottom = FOOT_PAD
        self._foot.set_pad((left, top, right + room, bottom))

    def _toggle_list(self) -> None:
        self._wants_list = self.list.isHidden()
        if self._wants_list and self.width() < px(INSPECTOR_FROM):
            self._wants_inspector = False
        self._arrange()

    def _toggle_inspector(self) -> None:
        self._wants_inspector = not self._wants_inspector
        self._arrange()

    def _arrange(self) -> None:
        """Give list and inspector their room, as far as there is some."""
        width = self.width()
        both = width >= px(INSPECTOR_FROM)
        side = self._wants_inspector and not both
        shows_list = self._wants_list and not side and width >= px(LIST_FROM)
        self.list.setVisible(shows_list)
        self._list_line.setVisible(shows_list)
        self.inspector.setVisible(self._wants_inspector)
        self._inspector_line.setVisible(self._wants_inspector)
        self.new.setVisible(not shows_list)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Fold what has no room."""
        super().resizeEvent(event)
        self._arrange()
