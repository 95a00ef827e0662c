"""The chat page's view model: list, conversation, running replies and context meter put together.

Knows no widget. Made by `app.main` with the store and the engine client; other pages are reached
by signals that the main window connects.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from PySide6.QtCore import QObject, QTimer, Signal

from app.services.chat_records import (
    Chat,
    ChatId,
    MessageId,
    MessageState,
    Reasoning,
    StoreNotice,
)
from app.services.chat_rows import draft_parts, encode
from app.services.chat_store import NEW_DRAFT, NEW_FILES, ChatStore
from app.services.outcome import ProcessOutcome
from app.services.presets import PresetStore
from app.services.remote_switch import TalkClient
from app.services.settings import SettingsStore
from app.viewmodels.chat_context import ContextMeter
from app.viewmodels.chat_conversation import NO_CHAT, NO_MESSAGE, Conversation
from app.viewmodels.chat_files import ChatFiles
from app.viewmodels.chat_list import ChatListModel
from app.viewmodels.chat_presets import ChatPresets
from app.viewmodels.chat_reply import ReplyRunner
from engine.protocol.errors import ErrorCode, InvalidRequest
from engine.protocol.messages import Error, Part, Sampling

DRAFT_MS = 500


@dataclass(frozen=True, slots=True)
class Coming:
    """A model on its way: its name, what is done with it now, and the share done (None = ?)."""

    name: str
    doing: str
    share: float | None = None


class ChatViewModel(QObject):
    """What the chat page shows and does.

    Attributes:
        talk: the conversation on screen.
        chats: the list at the left.
        runner: replies that are being written, of all chats.
        context: how much of the context this conversation takes.
        files: attachments, export and import.
        presets: the preset of this chat.
        notices: sentences about what could not be read at the start.

    Signals:
        engine_changed: model, engine state or crash is another now.
        options_changed: title, system prompt or sampling of this chat.
        noticed: `notice` is another now.
        said: (sentence) something to tell for a moment.
        page_requested: (page name) a button leads to another page.
        load_requested: the person wants a model now.
        restart_requested: (smaller) the person wants the engine back, with a smaller cache or
            as it was.
    """

    engine_changed = Signal()
    options_changed = Signal()
    noticed = Signal()
    said = Signal(str)
    page_requested = Signal(str)
    load_requested = Signal()
    restart_requested = Signal(bool)

    def __init__(
        self,
        store: ChatStore,
        client: TalkClient,
        settings: SettingsStore | None = None,
        clock: Callable[[], float] = time.time,
        presets: PresetStore | None = None,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._store, self._client, self._settings, self._clock = store, client, settings, clock
        self._crash: ProcessOutcome | None = None
        self._coming: Coming | None = None
        self._notice: StoreNotice | None = None
        self.runner = ReplyRunner(store, client, parent=self)
        self.talk = Conversation(store, client, self.runner, self._default_sampling, self)
        self.chats = ChatListModel(store, clock, self)
        self.context = ContextMeter(client, self.talk.sent_messages, self)
        self.files = ChatFiles(store, self.talk, self.runner, clock, self)
        presets = presets or PresetStore(parent=self)
        presets.failed.connect(self.said)
        self.notices = tuple(presets.notices)
        self.presets = ChatPresets(self.talk, presets, self)
        self._draft_timer = QTimer(self)
        self._draft_timer.setSingleShot(True)
        self._draft_timer.setInterval(DRAFT_MS)
        self._draft_timer.timeout.connect(self.save_draft)
        self.talk.opened.connect(self._on_opened)
        self.talk.path_changed.connect(self.context.recount)
        self.talk.chats_changed.connect(self._on_chats_changed)
        self.talk.draft_replaced.connect(self._count_draft)
        self.talk.files_changed.connect(self._on_files)
        self.files.said.connect(self.said)
        self.files.imported.connect(self._on_imported)
        self.presets.applied.connect(self._on_preset)
        self.talk.grew.connect(self._on_grew)
        self.runner.ended.connect(self._on_ended)
        client.loaded.connect(self._on_engine)
        client.unloaded.connect(self._on_engine)
        client.state_changed.connect(self._on_engine)
        client.ready.connect(self._on_ready)
        client.failed.connect(self._on_failed)
        client.stopped.connect(self._on_stopped)
        self._open_first()
        store.listen(self._heard)

    # --- facts ----------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Seconds since the epoch."""
        return self._clock()

    @property
    def model_name(self) -> str:
        """Name of the loaded model, or ""."""
        return self._client.model.name if self._client.model is not None else ""

    @property
    def model_quant(self) -> str:
        """Format of the loaded model, or ""."""
        return self._client.model.quant if self._client.model is not None else ""

    @property
    def coming(self) -> Coming | None:
        """The model on its way; None = none, or it is there."""
        return self._coming if self._client.model is None else None

    def set_coming(self, coming: Coming | None) -> None:
        """Take from the session what is on its way."""
        if coming != self._coming:
            self._coming = coming
            self.engine_changed.emit()

    @property
    def crash(self) -> ProcessOutcome | None:
        """How the engine ended without being asked to, until it is back."""
        return self._crash

    @property
    def notice(self) -> StoreNotice | None:
        """What was last said about the chat file, until it is put away."""
        return self._notice

    def dismiss_notice(self) -> None:
        """Put the notice away."""
        self._notice = None
        self.noticed.emit()

    # --- chats ----------------------------------------------------------------------------------

    def new_chat(self) -> None:
        """Begin a new conversation; works in every state (case G-03)."""
        self.save_draft()
        self.talk.show(self._blank())

    def open_chat(self, chat_id: ChatId, message_id: MessageId = NO_MESSAGE) -> None:
        """Show a chat, on the branch that holds a message; an unknown id is ignored."""
        if chat_id != self.talk.chat.id:
            self.save_draft()
            chat = self._store.chat(chat_id)
            if chat is None:
                return
            self.talk.show(chat)
        if message_id != NO_MESSAGE:
            self.talk.go_to(message_id)

    def delete_chat(self, chat_id: ChatId) -> None:
        """Take a chat off the list, stop its reply; `chats.undo_delete` brings it back."""
        self.talk.forget(chat_id)
        if chat_id == self.talk.chat.id:
            self.new_chat()
        self.chats.delete(chat_id)

    def rename_chat(self, chat_id: ChatId, title: str) -> None:
        """Give a chat another title."""
        self.chats.rename(chat_id, title)
        self.talk.sync(chat_id)
        self.options_changed.emit()

    def set_pinned(self, chat_id: ChatId, pinned: bool) -> None:
        """Keep a chat at the top of the list, or no longer."""
        self.chats.set_pinned(chat_id, pinned)
        self.talk.sync(chat_id)

    # --- draft ----------------------------------------------------------------------------------

    def set_draft(self, text: str) -> None:
        """Remember what is typed; it survives a change of chat and a restart."""
        if text != self.talk.chat.draft:
            self.talk.set_draft(text)
            self._draft_timer.start()
            self._count_draft()

    def save_draft(self) -> None:
        """Store the draft now."""
        self._draft_timer.stop()
        chat = self.talk.chat
        if chat.id != NO_CHAT:
            self.talk.change(draft=chat.draft)
        elif (chat.draft, chat.files) != self._new_draft():
            self._store.save_note(NEW_DRAFT, chat.draft)
            self._store.save_note(NEW_FILES, encode(chat.files))

    def send(self, text: str) -> bool:
        """Send a message, or let it wait. Returns False if there is nothing to send."""
        was_new = self.talk.chat.id == NO_CHAT
        self._draft_timer.stop()
        if not self.talk.send(text):
            return False
        if was_new:
            self.options_changed.emit()
        self._count_draft()
        return True

    # --- options of this chat -------------------------------------------------------------------

    @property
    def sampling(self) -> Sampling:
        """What the next reply is sampled with."""
        return self.talk.chat.sampling or self._default_sampling()

    def set_sampling(self, sampling: Sampling | None) -> None:
        """Use these values in this chat; None = the defaults. Values out of range are refused."""
        try:
            if sampling is not None:
                sampling.check()
        except InvalidRequest as problem:
            self.said.emit(problem.message)
        else:
            self.talk.change(sampling=sampling)
        self.options_changed.emit()

    def change_sampling(self, **values: object) -> None:
        """Change single values of `sampling`."""
        self.set_sampling(msgspec.structs.replace(self.sampling, **values))

    def set_system_prompt(self, text: str) -> None:
        """Put another text before the conversation."""
        if text != self.talk.chat.system_prompt:
            self.talk.change(system_prompt=text)
            self.context.recount()
            self.options_changed.emit()

    def set_reasoning(self, reasoning: Reasoning) -> None:
        """Let the model think so much from the next reply on."""
        self.talk.change(reasoning=reasoning)
        self.talk.state_changed.emit()
        self.options_changed.emit()

    def close(self) -> None:
        """Store what is not stored yet; called before the app quits."""
        self.context.close()
        self.files.close()
        self.save_draft()
        self.runner.save()
        self.chats.finish_delete()

    def fall_silent(self) -> None:
        """Store what came since `close`, and do nothing more: the store is closed next.

        Engines may end late, and timers may be running: searches, drafts, replies. Whatever they
        would set off finds no store any more, so nothing of the chat hears or tells a signal.
        """
        self.runner.save()
        for part in (self._client, self, *self.findChildren(QObject)):
            part.blockSignals(True)

    # --- inside ---------------------------------------------------------------------------------

    def _default_sampling(self) -> Sampling:
        """The person's general choice, else the model's own values, else the engine's."""
        if self._settings is not None and self._settings.value.sampling is not None:
            return self._settings.value.sampling
        model = self._client.model
        return (model.sampling if model is not None else None) or Sampling()

    def _open_first(self) -> None:
        """After a crash the chat with the broken reply, else a new one."""
        newest = self.chats.chats()[:1]
        path = self._store.path_of(newest[0].id) if newest else []
        broken = bool(path) and path[-1].state is MessageState.INTERRUPTED
        self.talk.show(newest[0] if broken else self._blank())

    def _blank(self) -> Chat:
        prompt = self._settings.value.system_prompt if self._settings is not None else ""
        draft, files = self._new_draft()
        return Chat(NO_CHAT, system_prompt=prompt, draft=draft, files=files)

    def _new_draft(self) -> tuple[str, tuple[Part, ...]]:
        files = self._store.note(NEW_FILES)
        return self._store.note(NEW_DRAFT), draft_parts(files) if files else ()

    def _count_draft(self) -> None:
        self.context.set_draft(self.talk.draft)

    def _on_files(self) -> None:
        self._draft_timer.start()
        self._count_draft()

    def _on_imported(self, chat_id: int) -> None:
        self.chats.refresh()
        self.open_chat(ChatId(chat_id))

    def _on_preset(self) -> None:
        self.context.recount()
        self.talk.state_changed.emit()
        self.options_changed.emit()

    def _on_opened(self) -> None:
        self._count_draft()
        self.context.forget()
        self.options_changed.emit()

    def _on_grew(self, message_id: int) -> None:
        reply = self.runner.reply_of(MessageId(message_id))
        if reply is not None and self.talk.message(message_id) is not None:
            self.context.set_live(reply.tokens)

    def _on_ended(self, message_id: int) -> None:
        if self.talk.message(message_id) is not None:
            self.context.end_live()

    def _on_chats_changed(self) -> None:
        self.chats.refresh()
        self.options_changed.emit()

    def _heard(self, notice: StoreNotice) -> None:
        self._notice = notice
        self.noticed.emit()

    def _on_engine(self) -> None:
        self.talk.send_waiting()
        self.context.recount()
        self.engine_changed.emit()
        self.options_changed.emit()  # the model's own sampling may be the default

    def _on_ready(self) -> None:
        self._crash = None
        self.engine_changed.emit()

    def _on_failed(self, event: Error) -> None:
        """A load that was cancelled ends the waiting for it too (case G-10)."""
        if event.code is ErrorCode.CANCELLED and self._client.is_running:
            self.talk.stop_waiting()

    def _on_stopped(self, outcome: ProcessOutcome) -> None:
        self._crash = outcome if outcome.unexpected else None
        self.engine_changed.emit()
