"""A client that answers only when told to, and a store in a temporary folder."""

from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.services.chat_store import ChatStore
from app.services.outcome import ProcessOutcome
from app.viewmodels.chat import ChatViewModel
from engine.protocol import messages as m
from engine.protocol.errors import ErrorCode

MODEL = m.ModelInfo(
    path="/m/tiny",
    name="Tiny MoE",
    model_type="qwen3_moe",
    quant="FP8",
    num_layers=8,
    num_moe_layers=8,
    num_experts=32,
    top_k=4,
    hidden_size=256,
    context_tokens=4096,
    record_bytes=1,
    num_records=256,
    pool_bytes=256,
    sampling=m.Sampling(temperature=0.7, top_p=0.8),
)


class FakeClient(QObject):
    """The signals and calls of EngineClient that the chat uses; a test plays the engine."""

    ready = Signal(object)
    state_changed = Signal(object)
    loaded = Signal(object)
    unloaded = Signal(object)
    started = Signal(object)
    delta = Signal(object)
    tool_call = Signal(object)
    finished = Signal(object)
    stats = Signal(object)
    status = Signal(object)
    token_count = Signal(object)
    failed = Signal(object)
    stopped = Signal(object)

    def __init__(self, model=MODEL):
        super().__init__()
        self.model = model
        self.is_running = True
        self.state = m.EngineState.READY if model else m.EngineState.IDLE
        self.requests = {}  # id -> (messages, sampling, continue_last)
        self.counts = []
        self.cancelled = []

    def generate(self, messages, sampling, tools=(), continue_last=False, template_args=None):
        request = f"reply-{len(self.requests) + 1}"
        self.template_args = template_args
        self.requests[request] = (messages, sampling, continue_last)
        return request

    def cancel(self, request):
        self.cancelled.append(request)
        self.finish(m.FinishReason.CANCELLED, request)

    def count_tokens(self, messages):
        self.counts.append(messages)
        return f"count-{len(self.counts)}"

    @property
    def last(self):
        return f"reply-{len(self.requests)}"

    def say(self, text, kind="text", request=""):
        self.delta.emit(m.TokenDelta(id=request or self.last, kind=kind, text=text))

    def finish(self, reason=m.FinishReason.STOP, request="", trace=None, tokens=5):
        self.finished.emit(
            m.Finished(
                id=request or self.last,
                reason=reason,
                usage=m.Usage(prompt_tokens=9, reply_tokens=tokens),
                trace=trace
                or m.Trace(
                    ttft_s=5.0,
                    decode_s=2.0,
                    decode_tokens_per_s=20.0,
                    hit_share=0.63,
                    fill_share=0.29,
                    cpu_share=0.08,
                ),
            )
        )

    def fail(self, code=ErrorCode.BUDGET, message="needs 9, 7 free", request=""):
        request = request or self.last
        self.failed.emit(m.Error(code=code, message=message, id=request))
        self.finished.emit(m.Finished(id=request, reason=m.FinishReason.ERROR))

    def load(self, model=MODEL):
        self.is_running, self.model, self.state = True, model, m.EngineState.READY
        self.loaded.emit(m.Loaded(id="load-1", model=model))

    def die(self, unexpected=True):
        """The process is gone: every open reply ends, then `stopped`."""
        self.is_running, self.model, self.state = False, None, m.EngineState.IDLE
        for request in self.requests:
            self.failed.emit(m.Error(code=ErrorCode.INTERNAL, message="died", id=request))
            self.finished.emit(m.Finished(id=request, reason=m.FinishReason.ERROR))
        self.stopped.emit(ProcessOutcome(unexpected, "The engine crashed.", "last line"))


def make_vm(folder: Path, client=None, clock=None, settings=None):
    """Return a view model over a fresh store; keeps its parts as attributes for the test."""
    client = client or FakeClient()
    store = ChatStore(folder, *([clock] if clock else []))
    vm = ChatViewModel(store, client, settings, *([clock] if clock else []))
    vm.test_store, vm.test_client = store, client
    return vm
