"""Replies of an OpenAI-compatible server, told as the local engine tells its own.

Sends only what a person sent: no request but the two that `generate` and `list_models` make, no
redirect followed, no cookie kept. Knows no widget.
"""

import itertools
import time
from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer, QUrl, Signal
from PySide6.QtNetwork import QNetworkAccessManager, QNetworkReply, QNetworkRequest, QSslError

from app.services import remote_faults as faults
from app.services.remote_proxy import BadProxy, route_to
from app.services.remote_wire import (
    BadAnswer,
    Server,
    Stream,
    model_names,
    refused,
    request_body,
)
from app.wording import tr
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode

FIRST_S, STALL_S = 300.0, 60.0  # a long prompt may take minutes before the first word
LIST_S = 20.0
_MOST_BODY = 4 << 20
PROXY_LOGIN = 407  # HTTP


class RemoteClient(QObject):
    """One server.

    Args:
        first_s: how long the first byte of a reply may take. stall_s: the longest silence after it.
        list_s: how long the list of models may take to begin.
        clock: monotonic seconds.

    Signals:
        started(Started), delta(TokenDelta), tool_call(ToolCallDelta), failed(Error),
            finished(Finished): of replies, as the local engine has them.
        listed(tuple[str, ...]): the server's models. list_failed(Error): why there are none.
        changed(): `model` or `open_replies` differ.
    """

    started = Signal(object)
    delta = Signal(object)
    tool_call = Signal(object)
    failed = Signal(object)
    finished = Signal(object)
    listed = Signal(object)
    list_failed = Signal(object)
    changed = Signal()

    def __init__(
        self,
        first_s: float = FIRST_S,
        stall_s: float = STALL_S,
        list_s: float = LIST_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._limits_ms = (round(first_s * 1000), round(stall_s * 1000))
        self._list_ms = round(list_s * 1000)
        self._clock = clock
        self._numbers = itertools.count(1)
        self._server: Server | None = None
        self._model = self._proxy = ""
        self._network: QNetworkAccessManager | None = None  # made when first needed
        self._replies: dict[str, _Reply] = {}
        self._listing: _Call | None = None

    @property
    def open_replies(self) -> tuple[str, ...]:
        """Ids of the replies that are not finished."""
        return tuple(self._replies)

    @property
    def model(self) -> m.ModelInfo | None:
        """The chosen model, named with its server; None = not set up."""
        if self._server is None or not self._model:
            return None
        return m.ModelInfo(
            path="", name=f"{self._model} @ {self._server.host}", model_type="", quant="remote",
            num_layers=0, num_moe_layers=0, num_experts=0, top_k=0, hidden_size=0,
            context_tokens=0, record_bytes=0, num_records=0, pool_bytes=0,
        )  # fmt: skip

    @property
    def host(self) -> str:
        """Host and port of the server, "" = none."""
        return self._server.host if self._server is not None else ""

    def set_up(self, server: Server | None, model: str) -> None:
        """Ask this server from the next reply on; sends nothing."""
        self._server, self._model = server, model
        self.changed.emit()

    def use_proxy(self, setting: str) -> None:
        """Go through this proxy from the next request on, as `remote_proxy` reads it."""
        self._proxy = setting

    def list_models(self) -> None:
        """Ask the server for its models; `listed` or `list_failed` follows."""
        server = self._server
        if server is None:
            return
        if self._listing is not None:
            self._listing.drop()
            self._listing = None
        try:
            proxy = self._route(server)
        except BadProxy as problem:
            error = problem.error
            QTimer.singleShot(0, self, lambda: self.list_failed.emit(error))
            return
        limits_ms = (self._list_ms, self._limits_ms[1])
        call = _Call(self._manager().get(_request(server, "models")), limits_ms, self)
        call.proxy, self._listing = proxy, call
        call.ended.connect(self._on_listed)

    def generate(
        self,
        messages: tuple[m.ChatMessage, ...],
        sampling: m.Sampling,
        tools: tuple[m.Tool, ...] = (),
        continue_last: bool = False,
        template_args: dict[str, object] | None = None,
    ) -> str:
        """Answer a conversation. Returns the id; `finished` follows exactly once."""
        reply_id = f"remote-{next(self._numbers)}"
        server = self._server
        if server is None or not self._model:
            gone = m.Error(code=ErrorCode.INTERNAL, message=tr("No remote engine is set up."))
            QTimer.singleShot(0, self, lambda: self._end(reply_id, gone))
            return reply_id
        try:
            proxy = self._route(server)
        except BadProxy as problem:
            error = problem.error
            QTimer.singleShot(0, self, lambda: self._end(reply_id, error))
            return reply_id
        body = request_body(self._model, messages, sampling, tools, continue_last, template_args)
        sent = self._manager().post(_request(server, "chat/completions"), body)
        reply = _Reply(reply_id, sent, self._limits_ms, self._clock, self)
        reply.model, reply.proxy = self._model, proxy
        self._replies[reply_id] = reply
        reply.got.connect(self._on_delta)
        reply.over.connect(self._on_over)
        self.changed.emit()
        return reply_id

    def cancel(self, reply_id: str) -> None:
        """Hang up; unknown ids are ignored."""
        if reply_id in self._replies:
            self._replies[reply_id].drop()
            self._end(reply_id, None, m.FinishReason.CANCELLED)

    def close(self) -> None:
        """Hang up everywhere: the app ends."""
        for reply_id in self.open_replies:
            self.cancel(reply_id)
        if self._listing is not None:
            self._listing.drop()

    def _route(self, server: Server) -> faults.ProxyName:
        """Let the next request go by the proxy for this server, which is returned."""
        route = route_to(server, self._proxy)
        self._manager().setProxy(route.proxy)
        return route.name

    def _manager(self) -> QNetworkAccessManager:
        if self._network is None:
            self._network = QNetworkAccessManager(self)
        return self._network

    def _on_delta(self, delta: m.TokenDelta, is_first: bool) -> None:
        if is_first:
            self.started.emit(m.Started(id=delta.id, prompt_tokens=0))
        self.delta.emit(delta)

    def _on_over(self, reply_id: str, error: object) -> None:
        self._end(reply_id, error if isinstance(error, m.Error) else None)

    def _end(
        self, reply_id: str, error: m.Error | None, reason: m.FinishReason | None = None
    ) -> None:
        reply = self._replies.pop(reply_id, None)
        if error is not None:
            self.failed.emit(_of(error, reply_id))
            reason = m.FinishReason.ERROR
        usage, trace = m.Usage(), m.Trace()
        if reply is not None:
            usage, trace = reply.stream.usage, reply.trace()
            reason = reason or reply.stream.reason
            for call in reply.stream.calls() if error is None else ():
                self.tool_call.emit(call)
            reply.deleteLater()
        reason = reason or m.FinishReason.STOP
        self.finished.emit(m.Finished(id=reply_id, reason=reason, usage=usage, trace=trace))
        self.changed.emit()

    def _on_listed(self, body: bytes, error: object) -> None:
        call, self._listing = self._listing, None
        if call is not None:
            call.deleteLater()
        if isinstance(error, m.Error):
            self.list_failed.emit(error)
            return
        try:
            self.listed.emit(model_names(body))
        except BadAnswer:
            self.list_failed.emit(faults.no_such_server(self.host))


class _Call(QObject):
    """One request: its time limits, and its end in words.

    Signals:
        ended(bytes, Error | None): the whole body, or why there is none.
    """

    ended = Signal(bytes, object)

    def __init__(self, reply: QNetworkReply, limits_ms: tuple[int, int], parent: QObject) -> None:
        super().__init__(parent)
        self.host = reply.url().authority()
        self.model, self.proxy = "", faults.NO_PROXY
        self._certificate: list[QSslError.SslError] = []
        self._reply, self._stall_ms = reply, limits_ms[1]
        self._body = bytearray()
        self._is_late = False
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self._on_late)
        self._timer.start(limits_ms[0])
        reply.setParent(self)
        reply.readyRead.connect(self._on_data)
        reply.finished.connect(self._on_finished)
        reply.sslErrors.connect(self._on_certificate)

    @property
    def status(self) -> int:
        """The HTTP status, 0 = none came."""
        return int(self._reply.attribute(QNetworkRequest.Attribute.HttpStatusCodeAttribute) or 0)

    def drop(self) -> None:
        """Hang up and say nothing more."""
        self._timer.stop()
        self._reply.readyRead.disconnect(self._on_data)
        self._reply.finished.disconnect(self._on_finished)
        self._reply.abort()
        self.deleteLater()

    def take(self, data: bytes) -> None:
        """Keep what arrives."""
        self._body += data
        if len(self._body) > _MOST_BODY:
            self._reply.abort()

    def end(self, error: m.Error | None) -> None:
        """Tell the end."""
        self.ended.emit(bytes(self._body), error)

    def _on_data(self) -> None:
        self._timer.start(self._stall_ms)
        self.take(bytes(self._reply.readAll().data()))

    def _on_certificate(self, found: list[QSslError]) -> None:
        """Note what is wrong; it is never overlooked, so the request ends."""
        self._certificate += [problem.error() for problem in found]

    def _on_late(self) -> None:
        self._is_late = True
        self._reply.abort()

    def _on_finished(self) -> None:
        self._timer.stop()
        if self._reply.isOpen():  # not after a hang-up
            self.take(bytes(self._reply.readAll().data()))
        self.end(self._problem())

    def _problem(self) -> m.Error | None:
        if self._is_late:
            return faults.silent(self.host)
        if self.status == PROXY_LOGIN and self.proxy.shown:
            return faults.proxy_login(self.proxy)
        if self.status >= 300:
            return refused(self.status, bytes(self._body), self.host, self.model)
        error = self._reply.error()
        if error == QNetworkReply.NetworkError.NoError:
            return None
        fault = faults.Fault(
            error,
            self.host,
            self.proxy,
            self._reply.errorString(),
            has_begun=self.status > 0,
            certificate=self._certificate,
        )
        return faults.lost(fault)


class _Reply(_Call):
    """One streamed reply.

    Signals:
        got(TokenDelta, bool): a delta, and whether it is the first.
        over(str, Error | None): the end.
    """

    got = Signal(object, bool)
    over = Signal(str, object)

    def __init__(
        self,
        reply_id: str,
        reply: QNetworkReply,
        limits_ms: tuple[int, int],
        clock: Callable[[], float],
        parent: QObject,
    ) -> None:
        super().__init__(reply, limits_ms, parent)
        self.reply_id, self.stream = reply_id, Stream(reply_id)
        self._clock, self._begun = clock, clock()
        self._first: float | None = None
        self._last = self._begun
        self._count = 0
        self._bad: BadAnswer | None = None

    def take(self, data: bytes) -> None:
        """Pass on what is whole; the body of an error is kept."""
        if self.status >= 300:
            super().take(data)
            return
        try:
            self._tell(self.stream.feed(data))
        except BadAnswer as problem:
            self._bad = self._bad or problem
            self._reply.abort()

    def end(self, error: m.Error | None) -> None:
        """Tell the end; a stream that was cut is no end."""
        if self._bad is None and error is None:
            try:
                self._tell(self.stream.close())
            except BadAnswer as problem:
                self._bad = problem
        if self._bad is not None:
            error = faults.no_such_server(self.host)
            if self._bad.text:
                said = self._bad.text
                words = tr("{host} broke off: {said}", host=self.host, said=said)
                error = m.Error(code=ErrorCode.NETWORK, message=words)
        elif error is None and not self.stream.is_done and self.stream.reason is None:
            error = faults.cut(self.host)
        self.over.emit(self.reply_id, error)

    def trace(self) -> m.Trace:
        """Return what this side saw of the speed."""
        if self._first is None:
            return m.Trace()
        decode_s = self._last - self._first
        tokens = max(self.stream.usage.reply_tokens, self._count) - 1
        rate = tokens / decode_s if decode_s > 0 and tokens > 0 else 0.0
        return m.Trace(
            ttft_s=self._first - self._begun, decode_tokens_per_s=rate, decode_s=decode_s
        )

    def _tell(self, deltas: list[m.TokenDelta]) -> None:
        for delta in deltas:
            self._last = self._clock()
            is_first = self._first is None
            self._first = self._last if is_first else self._first
            self._count += 1
            self.got.emit(delta, is_first)


def _request(server: Server, path: str) -> QNetworkRequest:
    request = QNetworkRequest(QUrl(f"{server.base}/{path}"))
    request.setHeader(QNetworkRequest.KnownHeaders.ContentTypeHeader, "application/json")
    request.setHeader(QNetworkRequest.KnownHeaders.UserAgentHeader, "freetoken-desktop")
    if server.key:
        request.setRawHeader(b"Authorization", f"Bearer {server.key}".encode())
    never = QNetworkRequest.RedirectPolicy.ManualRedirectPolicy
    request.setAttribute(QNetworkRequest.Attribute.RedirectPolicyAttribute, never)
    manual = QNetworkRequest.LoadControl.Manual
    request.setAttribute(QNetworkRequest.Attribute.CookieLoadControlAttribute, manual)
    request.setAttribute(QNetworkRequest.Attribute.CookieSaveControlAttribute, manual)
    return request


def _of(error: m.Error, reply_id: str) -> m.Error:
    return m.Error(code=error.code, message=error.message, hint=error.hint, id=reply_id)
