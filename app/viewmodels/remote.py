"""The remote engine's settings: off until the person switches it on, its key in the keyring.

Each server has its own key: a changed address never gets the key of another one. QtCore only.
"""

from collections.abc import Callable

from PySide6.QtCore import QObject, Signal

from app.services.remote_client import RemoteClient
from app.services.remote_switch import TalkClient
from app.services.remote_wire import Server, server_of
from app.services.secrets import SecretStore
from app.services.settings import Settings, SettingsStore
from app.wording import tr
from engine.protocol import messages as m


class RemoteViewModel(QObject):
    """See the module.

    Args:
        make_secrets: the store of one server's key, by its host.

    Attributes:
        models: what the server offers, as far as it was asked.
        problem: why it gave no answer, or why it cannot be switched on; "" = nothing.

    Signals:
        changed(): any property differs.
    """

    changed = Signal()

    def __init__(
        self,
        settings: SettingsStore,
        client: RemoteClient,
        talk: TalkClient,
        make_secrets: Callable[[str], SecretStore],
    ) -> None:
        super().__init__()
        self._settings, self._client, self._talk = settings, client, talk
        self._make_secrets = make_secrets
        self._secrets: dict[str, SecretStore] = {}
        self._seen = (False, "", "")
        self._is_asking = False
        self.models: tuple[str, ...] = ()
        self.problem = ""
        client.listed.connect(self._on_listed)
        client.list_failed.connect(self._on_list_failed)
        settings.changed.connect(self._on_settings)
        self._on_settings(settings.value)

    # --- facts ------------------------------------------------------------------------------

    @property
    def is_on(self) -> bool:
        """Whether the person wants it."""
        return self._settings.value.remote_on

    @property
    def address(self) -> str:
        """As the person wrote it."""
        return self._settings.value.remote_url

    @property
    def model(self) -> str:
        """The chosen model."""
        return self._settings.value.remote_model

    @property
    def host(self) -> str:
        """Where messages go, "" = they stay here."""
        return self._client.host if self._talk.is_remote else ""

    @property
    def shown_name(self) -> str:
        """The remote model as it is called everywhere, "" = the local engine answers."""
        model = self._client.model if self._talk.is_remote else None
        return model.name if model is not None else ""

    @property
    def is_replying(self) -> bool:
        """Whether it writes a reply."""
        return bool(self._client.open_replies)

    @property
    def has_key(self) -> bool:
        """Whether a key is known for this server."""
        server = server_of(self.address)
        return server is not None and bool(self._store(server).token)

    @property
    def is_asking(self) -> bool:
        """Whether the list of models is awaited."""
        return self._is_asking

    @property
    def is_open(self) -> bool:
        """Whether others on the way could read along."""
        server = server_of(self.address)
        return server is not None and server.is_open

    # --- intents ----------------------------------------------------------------------------

    def set_on(self, on: bool) -> None:
        """Let the remote engine answer, or the local one again."""
        problem = ""
        if on and server_of(self.address) is None:
            problem = tr("Enter the server's address first, such as https://host/v1.")
        elif on and not self.model:
            problem = tr("Choose a model first.")
        self._say(problem)
        if not problem:
            self._settings.set(remote_on=on)
        self.changed.emit()

    def set_address(self, text: str) -> None:
        """Use another server; it is off until it is switched on again."""
        text = text.strip()
        if text == self.address:
            return
        good = not text or server_of(text) is not None
        self._say("" if good else tr("This is no address. It should look like https://host/v1."))
        if good:
            self.models = ()
            self._settings.set(remote_url=text, remote_on=False, remote_model="")
        self.changed.emit()

    def set_key(self, key: str) -> None:
        """Keep a key for this server."""
        server = server_of(self.address)
        if server is not None and key.strip():
            self._store(server).remember(key)
            self._set_up()
            self.changed.emit()

    def set_model(self, name: str) -> None:
        """Choose a model by its name."""
        self._say("")
        self._settings.set(remote_model=name.strip())

    def list_models(self) -> None:
        """Ask the server what it offers; the first thing that is ever sent to it."""
        server = server_of(self.address)
        if server is None:
            self._say(tr("Enter the server's address first, such as https://host/v1."))
            return
        self._say("")
        self._is_asking = True
        self.changed.emit()
        self._store(server).when_loaded(self._ask)

    def close(self) -> None:
        """The app ends: hang up."""
        self._client.close()

    # --- parts ------------------------------------------------------------------------------

    def _ask(self) -> None:
        self._set_up()
        self._client.list_models()

    def _store(self, server: Server) -> SecretStore:
        if server.host not in self._secrets:
            self._secrets[server.host] = self._make_secrets(server.host)
        return self._secrets[server.host]

    def _on_settings(self, settings: Settings) -> None:
        self._client.use_proxy(settings.hub_proxy)
        seen = (settings.remote_on, settings.remote_url, settings.remote_model)
        if seen == self._seen:
            return
        self._seen = seen
        server = server_of(settings.remote_url)
        if settings.remote_on and server is not None:
            self._store(server).when_loaded(self._switch)
        else:
            self._switch()

    def _switch(self) -> None:
        self._set_up()
        self._talk.use_remote(self.is_on)
        self.changed.emit()

    def _set_up(self) -> None:
        server = server_of(self.address)
        if server is not None:
            server = server_of(self.address, self._store(server).token)
        self._client.set_up(server, self.model)

    def _on_listed(self, names: tuple[str, ...]) -> None:
        self._is_asking, self.models = False, names
        if not names:
            self.problem = tr("The server offers no models.")
        elif self.model not in names:
            self._settings.set(remote_model=names[0])
        self.changed.emit()

    def _on_list_failed(self, error: m.Error) -> None:
        self._is_asking, self.models = False, ()
        self.problem = f"{error.message} {error.hint}".strip()
        self.changed.emit()

    def _say(self, sentence: str) -> None:
        if sentence != self.problem:
            self.problem = sentence
            self.changed.emit()
