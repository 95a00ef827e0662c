"""One conversation on screen: its path through the tree, and everything done to it.

Stores before it sends, and lets a message wait for the reply before it or for a model, so that
nothing typed is ever lost. Replies of other chats go on behind. QtCore only; owned by
`ChatViewModel`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from PySide6.QtCore import QObject, Signal

from app.services.chat_records import (
    Chat,
    ChatId,
    Draft,
    Message,
    MessageId,
    MessageState,
    ReplyFacts,
    reply_place,
    text_parts,
    title_from,
)
from app.services.chat_store import ChatStore
from app.services.remote_switch import TalkClient
from app.viewmodels.chat_reply import ReplyRunner
from app.viewmodels.chat_send import chat_messages, template_args
from engine.protocol.messages import ChatMessage, EngineState, Part, Sampling

NO_CHAT = ChatId(0)
NO_MESSAGE = MessageId(0)
_NOT_NOW = (EngineState.LOADING, EngineState.STOPPING)


class Conversation(QObject):
    """The chat on screen; its id is `NO_CHAT` until the first message is sent.

    Signals:
        opened: another conversation (or a new, empty one) is on screen.
        path_changed: messages came, went or were switched; compare by id.
        message_changed: (message id) state, figures or text of one message.
        grew: (message id) a running reply has more text.
        state_changed: replying, waiting or queue; for composer and cards.
        deleted: (message id) can be brought back with `undo_delete`.
        draft_replaced: the draft is another text than the person typed.
        files_changed: other files are attached to the draft.
        chats_changed: a chat began, was renamed or moved up; for the list.
    """

    opened = Signal()
    path_changed = Signal()
    message_changed = Signal(int)
    grew = Signal(int)
    state_changed = Signal()
    deleted = Signal(int)
    draft_replaced = Signal()
    files_changed = Signal()
    chats_changed = Signal()

    def __init__(
        self,
        store: ChatStore,
        client: TalkClient,
        runner: ReplyRunner,
        default_sampling: Callable[[], Sampling],
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._store, self._client, self._runner = store, client, runner
        self._default_sampling = default_sampling
        self._chat = Chat(NO_CHAT)
        self._path: list[Message] = []
        self._waiting: dict[ChatId, tuple[MessageId, bool]] = {}  # for a model; bool = continue
        runner.grew.connect(self.grew)
        runner.ended.connect(self._on_ended)

    # --- what is on screen ----------------------------------------------------------------------

    @property
    def chat(self) -> Chat:
        """Title, settings and draft."""
        return self._chat

    @property
    def messages(self) -> Sequence[Message]:
        """The path on screen as stored; `message` adds what has arrived since."""
        return self._path

    @property
    def is_replying(self) -> bool:
        """Whether the last message on screen is being written."""
        return bool(self._path) and self._runner.reply_of(self._path[-1].id) is not None

    @property
    def is_waiting(self) -> bool:
        """Whether the next reply of this chat waits for a model."""
        return self._chat.id in self._waiting

    @property
    def queued(self) -> Draft:
        """The message that is sent when this reply is done; empty = none."""
        return Draft.of(self._chat.queued)

    @property
    def draft(self) -> Draft:
        """What is typed and attached."""
        return Draft(self._chat.draft, self._chat.files)

    @property
    def is_model_ready(self) -> bool:
        """Whether a message would be answered at once."""
        client = self._client
        return client.is_running and client.model is not None and client.state not in _NOT_NOW

    def message(self, message_id: int) -> Message | None:
        """Return a message of the path with what has arrived of it."""
        message = self._on_path(message_id)
        reply = self._runner.reply_of(message.id) if message is not None else None
        if message is None or reply is None:
            return message
        return replace(reply.message, parts=reply.parts(), facts=reply.facts())

    def versions(self, message: Message) -> list[MessageId]:
        """Return the ids of the versions of a turn, in order."""
        return self._store.versions(message)

    def sent_messages(self, files: bool = True) -> tuple[ChatMessage, ...]:
        """Return the conversation as the engine has or would get it, without a running reply."""
        path = self._path[:-1] if self.is_replying else self._path
        return chat_messages(self._chat.system_prompt, path, files=files)

    # --- chat -----------------------------------------------------------------------------------

    def show(self, chat: Chat) -> None:
        """Put a chat on screen."""
        self._chat = chat
        self._path = self._store.path_of(chat.id)
        self.opened.emit()

    def change(self, **values: object) -> None:
        """Change title, system prompt, sampling, pin or draft of this chat, and store it."""
        self._chat = replace(self._chat, **values)  # type: ignore[arg-type]
        if self._chat.id != NO_CHAT:
            self._store.save_chat(self._chat)

    def set_draft(self, text: str) -> None:
        """Remember what is typed; `change` or the view model stores it."""
        self._chat = replace(self._chat, draft=text)

    def sync(self, chat_id: ChatId) -> None:
        """Read the record of this chat anew after the list changed it."""
        if chat_id == self._chat.id and (chat := self._store.chat(chat_id)) is not None:
            self._chat = replace(chat, draft=self._chat.draft, files=self._chat.files)

    def forget(self, chat_id: ChatId) -> None:
        """End everything that runs or waits for a chat that is being deleted."""
        self._drop_waiting(chat_id)
        for message in self._store.path_of(chat_id)[-1:]:
            self._runner.stop(message.id)

    # --- writing --------------------------------------------------------------------------------

    def send(self, text: str) -> bool:
        """Send a text with the attached files, or let it wait. Returns False if it is empty."""
        draft = replace(self.draft, text=text)
        if not draft:
            return False
        if self._is_busy:
            self.change(draft="", files=(), queued=(self.queued + draft).parts())
        else:
            title = self._chat.title or title_from(draft.words)
            chat = replace(self._chat, title=title, draft="", files=())
            self._ask(chat, draft.parts(), self._path[-1].id if self._path else None)
        self.files_changed.emit()
        self.state_changed.emit()
        return True

    def attach(self, chat_id: ChatId, files: tuple[Part, ...]) -> None:
        """Give a chat's draft these files instead of those it has."""
        if chat_id == self._chat.id:
            self.change(files=files)
            self.files_changed.emit()
        elif (chat := self._store.chat(chat_id)) is not None:
            self._store.save_chat(replace(chat, files=files))

    def unqueue(self) -> None:
        """Put the queued message back into the composer."""
        if self.queued:
            draft = self.queued + self.draft
            self.change(draft=draft.text, files=draft.files, queued=())
            self.draft_replaced.emit()
            self.files_changed.emit()
            self.state_changed.emit()

    def stop(self) -> None:
        """End the reply on screen, or stop waiting for a model (case G-10). Text is kept."""
        self.unqueue()
        if self.is_waiting:
            self._drop_waiting(self._chat.id)
        elif self._path:
            self._runner.stop(self._path[-1].id)

    def regenerate(self, message_id: MessageId) -> None:
        """Answer anew: another version beside a reply, or a new reply to a message.

        A reply that broke before its first word is begun again in its own place.
        """
        message = self._on_path(message_id)
        if message is None or self._is_busy:
            return
        if message.role == "user":
            self._reply(self._chat, message.id)
        elif message.parts:
            self._reply(self._chat, message.parent)
        else:
            self._begin(self._chat, message, continue_last=False)

    def retry_last(self) -> None:
        """Answer the last message anew."""
        if self._path:
            self.regenerate(self._path[-1].id)

    def continue_reply(self, message_id: MessageId) -> None:
        """Go on with the last reply after it was interrupted, stopped or cut."""
        message = self._on_path(message_id)
        if message is None or message.role != "assistant" or self._is_busy:
            return
        self._begin(self._chat, message, continue_last=bool(message.parts))

    def edit(self, message_id: MessageId, text: str) -> None:
        """Store another version of a message; one of the person's is answered anew (case G-09)."""
        message = self._on_path(message_id)
        if message is None or not text.strip() or text == message.text or self._is_busy:
            return
        if message.role == "user":
            self._ask(self._chat, message.files + text_parts(text), message.parent)
            return
        parts = text_parts(text, message.reasoning)
        self._store.add_message(replace(message, parts=parts, state=MessageState.DONE))
        self._reload()

    def delete(self, message_id: MessageId) -> None:
        """Delete a message and what follows it on this branch; `undo_delete` brings it back."""
        if self._on_path(message_id) is None:
            return
        self.stop()
        self._store.hide(message_id)
        self._reload()
        self.deleted.emit(message_id)

    def undo_delete(self, message_id: MessageId) -> None:
        """Bring a deleted message back; its branch is shown if its chat is on screen."""
        self._store.unhide(message_id)
        self._reload()

    def switch(self, message_id: MessageId, step: int) -> None:
        """Show the version `step` places after this one, with all that followed it."""
        message = self._on_path(message_id)
        if message is None:
            return
        versions = self._store.versions(message)
        place = versions.index(message_id) + step if message_id in versions else -1
        if 0 <= place < len(versions):
            self._store.show(versions[place])
            self._reload()

    def go_to(self, message_id: MessageId) -> None:
        """Show the branch of a message of this chat, if it is on another one."""
        message = self._store.message(message_id)
        if self._on_path(message_id) is None and message and message.chat_id == self._chat.id:
            self._store.show(message_id)
            self._reload()

    def send_waiting(self) -> None:
        """Send what waited for a model, if there is one now."""
        if not self.is_model_ready or not self._waiting:
            return
        waiting, self._waiting = self._waiting, {}
        for chat_id, (message_id, continue_last) in waiting.items():
            chat, message = self._chat_of(chat_id), self._store.message(message_id)
            if chat is not None and message is not None:
                self._begin(chat, message, continue_last)

    def stop_waiting(self) -> None:
        """Nothing waits for a model any more; the places stay, to be begun again."""
        for chat_id in tuple(self._waiting):
            self._drop_waiting(chat_id)

    # --- inside ---------------------------------------------------------------------------------

    @property
    def _is_busy(self) -> bool:
        return self.is_replying or self.is_waiting

    def _on_path(self, message_id: int) -> Message | None:
        return next((m for m in reversed(self._path) if m.id == message_id), None)

    def _chat_of(self, chat_id: ChatId) -> Chat | None:
        return self._chat if chat_id == self._chat.id else self._store.chat(chat_id)

    def _path_of(self, chat: Chat) -> list[Message]:
        return self._path if chat.id == self._chat.id else self._store.path_of(chat.id)

    def _ask(self, chat: Chat, parts: tuple[Part, ...], parent: MessageId | None) -> None:
        """Store the chat, new or not, and a message of the person; have it answered."""
        is_shown = chat.id == self._chat.id
        question = Message(NO_MESSAGE, chat.id, parent, "user", parts)
        chat, reply = self._store.add_turn(chat, question, self._model_name)
        if is_shown:
            self._chat = chat
        self._answer(chat, reply)
        self.chats_changed.emit()

    def _reply(self, chat: Chat, parent: MessageId | None) -> None:
        place = reply_place(chat.id, parent, self._model_name)
        self._answer(chat, self._store.add_message(place))

    def _answer(self, chat: Chat, reply: Message) -> None:
        if chat.id == self._chat.id:
            self._read_path()
        self._begin(chat, reply, continue_last=False)
        if chat.id == self._chat.id:
            self.path_changed.emit()

    def _begin(self, chat: Chat, message: Message, continue_last: bool) -> None:
        """Ask the engine for `message`, or note that it waits for a model."""
        if not self.is_model_ready:
            self._waiting[chat.id] = (message.id, continue_last)
        else:
            message = self._store.begin_reply(message, self._model_name)
            path = self._path_of(chat)
            place = next((i for i, m in enumerate(path) if m.id == message.id), len(path))
            shown = path[: place + continue_last]
            sampling = chat.sampling or self._default_sampling()
            messages = chat_messages(chat.system_prompt, shown, continue_last)
            args = template_args(chat.reasoning)
            self._runner.start(message, messages, sampling, continue_last, args)
        if chat.id == self._chat.id:
            self._path = [message if m.id == message.id else m for m in self._path]
            self.message_changed.emit(message.id)
            self.state_changed.emit()

    @property
    def _model_name(self) -> str:
        return self._client.model.name if self._client.model is not None else ""

    def _drop_waiting(self, chat_id: ChatId) -> None:
        """A reply that waited for a model does not come; its place stays, to be begun again."""
        waiting = self._waiting.pop(chat_id, None)
        message = self._store.message(waiting[0]) if waiting is not None else None
        if message is not None:
            self._store.finish(
                message.id, message.parts, MessageState.STOPPED, ReplyFacts(reason="cancelled")
            )
            self._on_ended(message.id)

    def _read_path(self) -> None:
        self._path = self._store.path_of(self._chat.id)

    def _reload(self) -> None:
        self._read_path()
        self.path_changed.emit()
        self.state_changed.emit()
        self.chats_changed.emit()

    def _on_ended(self, message_id: int) -> None:
        message = self._store.message(MessageId(message_id))
        if message is None:
            return
        if message.chat_id == self._chat.id:
            self._path = [message if m.id == message_id else m for m in self._path]
            self.message_changed.emit(message_id)
            self.state_changed.emit()
        self._send_queued(message)
        self.chats_changed.emit()

    def _send_queued(self, ended: Message) -> None:
        """Send what waited for this reply; after a failure it goes back into the composer."""
        chat = self._chat_of(ended.chat_id)
        if chat is None or not chat.queued:
            return
        queued, chat = chat.queued, replace(chat, queued=())
        if ended.state is MessageState.DONE:
            path = self._path_of(chat)
            self._ask(chat, queued, path[-1].id if path else None)
        elif chat.id == self._chat.id:
            self.unqueue()
        else:
            draft = Draft.of(queued) + Draft(chat.draft, chat.files)
            self._store.save_chat(replace(chat, draft=draft.text, files=draft.files))
