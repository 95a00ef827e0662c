"""A service with a model that needs no torch, and a way to wait for its events."""

import queue
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace

from engine.cache.pages import PageAllocator
from engine.loader.parts import LoadedModel
from engine.memory.budget import Division, MemoryBudget
from engine.protocol.errors import Cancelled, EngineError, InvalidRequest
from engine.protocol.messages import (
    ChatMessage,
    DeviceInfo,
    Error,
    Finished,
    Generate,
    Load,
    Loaded,
    ModelInfo,
    Part,
    Sampling,
)
from engine.protocol.places import DataRoot
from engine.scheduler.tally import Counts
from engine.service import EngineService
from engine.settings import EngineSettings
from engine.text.dialects.base import Piece
from tests.engine.scheduler.doubles import FakeMemory, FakeRunner

BUDGET = MemoryBudget(
    total_bytes=100_000,
    weights_bytes=10_000,
    runtime_bytes=5_000,
    kv_token_bytes=20,
    record_bytes=1_000,
    num_records=64,
    min_slots=4,
    context_tokens=1024,
)


class FakeExperts:
    def __init__(self, slots):
        self.num_slots = slots
        self.policies = []
        self.cold = self.warmed = 0  # pieces of warm-up: to come, and done
        self.refuse = False
        self.steps = 0

    def resize(self, slots):
        if self.refuse:
            raise MemoryError("no more")
        evicted = max(0, self.num_slots - slots)
        self.num_slots = slots
        return type("Outcome", (), {"evicted": evicted})()

    def set_policy(self, policy):
        self.policies.append(policy)

    def warm_up(self):
        self.cold -= (moved := self.cold > 0)
        self.warmed += moved
        return moved

    def counters(self):
        self.steps += 1
        return Counts(
            routes=4 * self.steps,
            hits=3 * self.steps,
            fills=self.steps,
            warm_up_bytes=1000 * self.warmed,
        )

    def heat(self):
        return bytes(64), b"\x01" * self.num_slots + bytes(64 - self.num_slots), 9


class FakeReply:
    def __init__(self, stop):
        self.stop = stop
        self.stopped = False

    def push(self, token_id):
        if str(token_id) in self.stop:
            self.stopped = True
            return []
        return [Piece("text", f"{token_id} ")]

    def close(self):
        return [Piece("text", "|")]


class FakeChat:
    """One token per character; refuses a conversation that says so."""

    tokenizer = property(lambda self: self)

    def encode(self, text):
        return [ord(char) for char in text]

    def prompt(self, messages, tools=(), continue_last=False, template_args=None):
        text = "".join(part.text for message in messages for part in message.parts)
        if text == "refuse":
            raise InvalidRequest("The template refuses.")
        if text == "explode":
            raise ValueError("boom")
        return text

    def reply(self, stop=(), ignore_eos=False, prompt_tail=""):
        return FakeReply(stop)


@dataclass
class Gate:
    """Holds a load or the steps, and remembers what was opened and closed."""

    load: threading.Event
    step: threading.Event
    entered: threading.Event
    held: tuple = ("prefill", "decode")  # phases that wait for `step`
    closed: int = 0
    model: LoadedModel | None = None
    load_problem: Exception | None = None
    model_type: str = "fake"


def _model(gate, budget, latency):
    division = Division(1024, 32)
    memory = FakeMemory(division.kv_tokens // 16)
    runner = FakeRunner(memory, latency)
    launch = runner.launch

    def gated(phase, works):
        assert phase not in gate.held or gate.step.wait(20)
        return launch(phase, works)

    runner.launch = gated

    def close():
        gate.closed += 1

    info = ModelInfo(
        path="/m",
        name="fake",
        model_type=gate.model_type,
        quant="bf16",
        num_layers=2,
        num_moe_layers=2,
        num_experts=32,
        top_k=4,
        hidden_size=8,
        context_tokens=1024,
        record_bytes=1000,
        num_records=64,
        pool_bytes=64_000,
        chunk_tokens=32,
    )
    return LoadedModel(
        info=info,
        device=DeviceInfo(
            name="cpu",
            title="CPU",
            total_bytes=budget.total_bytes,
            free_bytes=budget.total_bytes,
            emulated=True,
        ),
        budget=budget,
        chat=FakeChat(),
        runner=runner,
        pages=PageAllocator(division.kv_tokens // 16),
        kv=memory,
        experts=FakeExperts(division.expert_slots),
        policy="split",
        free_bytes=lambda: 0,
        close=close,
        kernels={"route": "reference: test"},
        notices=(("profile_stale", "Measured long ago."),),
        memory_errors=(MemoryError,),
        lost_errors=(ConnectionError,),
    )


class Client:
    """Sends commands and waits for events; keeps everything it heard."""

    def __init__(self, service):
        self.service = service
        self.heard = []
        self._queue = queue.Queue()

    def emit(self, event):
        self._queue.put(event)

    def send(self, command):
        self.service.handle(command)
        return command

    def wait(self, kind, **fields):
        """Return the next event of this kind whose fields match."""
        end = time.monotonic() + 20
        while True:
            event = self._queue.get(timeout=max(0.0, end - time.monotonic()))
            self.heard.append(event)
            if isinstance(event, kind) and all(
                getattr(event, name) == value for name, value in fields.items()
            ):
                return event

    def rest(self):
        while not self._queue.empty():
            self.heard.append(self._queue.get())
        return self.heard

    def all(self, kind, **fields):
        return [
            event
            for event in self.rest()
            if isinstance(event, kind)
            and all(getattr(event, name) == value for name, value in fields.items())
        ]

    def load(self, **fields):
        self.send(Load(id="load", model="m", **fields))
        return self.wait(Loaded)


@contextmanager
def service_thread(tmp_path, gate=None, budget=BUDGET, latency=0, **changes):
    """Run a service on a thread; yields (client, gate, thread result)."""
    gate = gate or new_gate()
    settings = replace(EngineSettings(home=DataRoot(tmp_path)), **changes)

    def open_model(command, settings, watch):
        gate.entered.set()
        watch.progress("read", 1, 2)
        watch.progress("read", 2, 2)
        while not gate.load.wait(0.005):
            if watch.cancelled():
                raise Cancelled("Loading was cancelled.")
        if gate.load_problem is not None:
            raise gate.load_problem
        gate.model = _model(gate, budget, latency)
        return gate.model

    client = Client(None)
    client.service = EngineService(client.emit, settings, open_model, lambda: ())
    outcome = []

    def run():
        try:
            client.service.run()
            outcome.append(None)
        except EngineError as problem:
            outcome.append(problem)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield client, gate, outcome
    finally:
        gate.load.set()
        gate.step.set()
        client.service.stop()
        thread.join(20)
        assert not thread.is_alive()


def new_gate(load=True, step=True):
    gate = Gate(threading.Event(), threading.Event(), threading.Event())
    if load:
        gate.load.set()
    if step:
        gate.step.set()
    return gate


def generate(name, text="hello", **sampling):
    return Generate(
        id=name,
        messages=(ChatMessage(role="user", parts=(Part(text=text),)),),
        sampling=Sampling(**{"max_tokens": 5, "seed": 1, **sampling}),
    )


def ends(client):
    """Finished reasons by id; every id once."""
    found = client.all(Finished)
    assert len({event.id for event in found}) == len(found), "finished twice"
    return {event.id: event.reason.value for event in found}


def errors(client):
    return {event.id: event.code.value for event in client.all(Error)}
