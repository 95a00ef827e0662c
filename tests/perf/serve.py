"""What the benchmarks of the served engine share: arguments, the loaded engine, its sizes.

The engine is a process of its own, as in the product. One load serves all rows of a table: cache
size and policy are changed live. `--threads` and `--cores` make the machine smaller on the CPU's
side, `--vram-gb` on the GPU's: all other device memory is held by this process meanwhile. With
`--budget-gb` the engine plans as on a smaller card: chunks and staging are those of one.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml

from engine.checkpoint.ftw import FtwReader
from engine.loader.locate import BUILTIN
from engine.memory.budget import KV_FLOOR_TOKENS
from engine.protocol.messages import Budget, Load, MissPolicy, ModelInfo
from kernels.device.base import Device
from kernels.device.registry import list_devices, open_device
from tests.perf.client import ENGINE, BenchError, EngineClient, Reply, user
from tests.perf.limits import GB, ModelBytes, Rates
from tests.perf.probe import probe_apart, rates_of
from tests.perf.walk import Walk, walk_of

MEMORY_ENGINE = "tests.perf.memory_engine"
SWITCHED_ENGINE = "tests.perf.switched_engine"
FIRST_START = 3000  # of prompts; neighbours overlap in nothing
START_GAP = 997
DEFAULT_POLICY = "default"


def common_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the arguments that all these benchmarks have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model", default=BUILTIN, help='a model folder, or "builtin"')
    parser.add_argument("--device", default="", help="the first GPU, else the CPU")
    parser.add_argument("--threads", type=int, default=0, help="of the engine; 0 = its choice")
    parser.add_argument("--cores", type=int, default=0, help="the engine may use; 0 = all")
    parser.add_argument("--vram-gb", type=float, default=0.0, help="left free; 0 = all of it")
    parser.add_argument("--budget-gb", type=float, default=0.0, help="the engine may use; 0 = all")
    parser.add_argument("--chunk-tokens", type=int, default=0, help="of a prompt; 0 = its choice")
    parser.add_argument("--home", type=Path, help="data root to keep; a temporary one if not given")
    parser.add_argument("--probe", type=Path, help="figures of dev.py bench probe --json")
    parser.add_argument("--json", type=Path, help="keep the figures here")
    return parser


@dataclass(frozen=True, slots=True)
class Served:
    """A loaded engine, and what its figures are held against.

    Attributes:
        client: the engine.
        info: facts of the model.
        sizes: its bytes.
        rates: of the machine.
        walk: prompts and their known replies.
        policy: what the engine chose by itself.
        probe: all figures of the probe, to keep.
    """

    client: EngineClient
    info: ModelInfo
    sizes: ModelBytes
    rates: Rates
    walk: Walk
    policy: MissPolicy
    probe: dict[str, Any]

    @property
    def slots(self) -> int:
        """Experts that fit into the cache now."""
        return self.client.pools()["experts"].units

    def set_share(self, share: float) -> int:
        """Let the cache hold this share of all experts. Returns its slots. Raises BenchError."""
        return self.client.resize(max(1, round(share * self.info.num_records))).expert_slots

    def shares(self, wanted: Iterable[float]) -> Iterator[tuple[float, int]]:
        """Set one share after the other. Yields it and its slots; says which cannot be had."""
        for share in wanted:
            try:
                slots = self.set_share(share)
            except BenchError as problem:
                print(f"share {share}: {problem}", flush=True)
                continue
            yield share, slots

    def set_room(self, kv_tokens: int) -> None:
        """Keep keys and values of so many tokens, so that an older prompt makes way for the next.

        Raises: BenchError.
        """
        self.client.resize(kv_tokens=max(kv_tokens, KV_FLOOR_TOKENS))

    def set_policy(self, name: str) -> str:
        """Serve misses by the policy of this name, or by the engine's own. Returns its name."""
        policy = self.policy if name == DEFAULT_POLICY else MissPolicy(name)
        self.client.set_policy(policy)
        return f"{policy} ({name})" if name == DEFAULT_POLICY else name

    def start(self, start: int, prompt_tokens: int, max_tokens: int) -> Reply:
        """Ask for the reply to the prompt that begins at `start`."""
        return self.client.start(user(self.walk.prompt(start, prompt_tokens)), max_tokens)

    def say(self, start: int, prompt_tokens: int, max_tokens: int) -> Reply:
        """Ask and wait."""
        reply = self.start(start, prompt_tokens, max_tokens)
        self.client.finish(reply)
        return reply

    def starts(self, count: int, span: int, first: int = FIRST_START) -> list[int]:
        """Return where `count` prompts of at most `span` tokens, reply included, may begin."""
        return [first + index * (span + START_GAP) for index in range(count)]


@contextmanager
def served(
    options: argparse.Namespace,
    kv_tokens: int,
    shares: Sequence[float],
    switch: Path | None = None,
    reuse: bool = False,
) -> Iterator[Served]:
    """Start an engine and load the model with room for the largest share.

    Without `reuse` every prompt is read as a whole, whatever was asked before.

    With `switch` it is `tests.perf.switched_engine`, which reads that file before each chunk.

    Raises: BenchError with the engine's own sentence.
    """
    probe = probe_apart(options.probe)
    device = options.device or first_device()
    with ExitStack() as stack:
        temporary = stack.enter_context(tempfile.TemporaryDirectory())
        home = options.home or Path(temporary)
        if options.vram_gb:
            stack.enter_context(ballast(device, options.vram_gb))
        folder = Path(options.model)
        module = MEMORY_ENGINE if folder.is_dir() and _is_in_memory(folder) else ENGINE
        words = ["--home", str(home), "--threads", str(options.threads), "--log-level", "warning"]
        words += [] if reuse else ["--no-reuse"]
        if switch is not None:
            words += ["--switch", str(switch)]
            words += ["--engine", module] if module == MEMORY_ENGINE else []
            module = SWITCHED_ENGINE
        client = stack.enter_context(EngineClient(*words, module=module, cores=options.cores))
        info = client.load(
            Load(
                id="load",
                model=options.model,
                devices=(device,),
                chunk_tokens=options.chunk_tokens,
                budget=_budget(folder, kv_tokens, max(shares, default=1.0), options.budget_gb),
            )
        )
        reader = FtwReader(Path(info.path))
        sizes = model_bytes(reader, info, client.pools()["kv"].unit_bytes)
        walk, policy = walk_of(reader.folder), client.status().policy
        yield Served(client, info, sizes, rates_of(probe), walk, policy, probe)


def model_bytes(reader: FtwReader, info: ModelInfo, kv_token_bytes: int) -> ModelBytes:
    """Return what the model's parts weigh, as they are stored."""
    embedding = 0
    if not reader.config.get("tie_word_embeddings"):  # else the head reads the same table
        embedding = sum(t.num_bytes for t in reader.index.tensors if "embed_tokens" in t.name)
    return ModelBytes(
        record=info.record_bytes,
        pool=info.pool_bytes,
        dense=reader.dense_bytes - embedding,
        kv_token=kv_token_bytes,
        layers=info.num_moe_layers,
        top_k=info.top_k,
    )


def first_device() -> str:
    """Return the first GPU that can be used, else the CPU."""
    usable = [device.name for device in list_devices(("cuda",)) if not device.problem]
    return usable[0] if usable else "cpu"


def run(main: Callable[[], int]) -> int:
    """Run a benchmark; what the engine refuses is printed as its sentence. Returns 1 then."""
    try:
        return main()
    except BenchError as problem:
        print(problem, file=sys.stderr)
        return 1


@contextmanager
def ballast(name: str, free_gb: float) -> Iterator[None]:
    """Hold so much of a GPU's memory that `free_gb` are left, as on a smaller card."""
    if not name.startswith("cuda"):
        raise BenchError("--vram-gb needs a GPU; the CPU's budget is emulated anyway.")
    device: Device = open_device(name)
    try:
        held = max(0, device.free_bytes() - int(free_gb * GB))
        region = device.region(held, held)
        try:
            yield
        finally:
            region.close()
    finally:
        device.close()


def measure_links(home: Path, model: str, device: str) -> None:
    """Let the engine's own profile job measure the rates that the policy `split` goes by.

    Raises: BenchError if it ends without them.
    """
    spec = {"mode": "quick", "model": model, "device": device, "home": str(home)}
    command = [sys.executable, "-m", "engine", "--job", "profile", "--spec", json.dumps(spec)]
    # Its stdin stays open: the end of it would cancel the job.
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as job:
        if code := job.wait():
            raise BenchError(f"The profile of link and CPU ended with code {code}.")


def device_gb(pid: int) -> float | None:
    """Return what a process holds of the first GPU, as the driver counts; None if it cannot say."""
    try:
        pynvml.nvmlInit()
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(0)
            running = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
            mine = [one.usedGpuMemory for one in running if one.pid == pid]
            if mine and mine[0] is not None:
                return mine[0] / GB
            return pynvml.nvmlDeviceGetMemoryInfo(handle).used / GB  # in a container: all of it
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return None


def _budget(folder: Path, kv_tokens: int, share: float, total_gb: float) -> Budget | None:
    """Ask for room for the largest share; of the built-in model nothing is known before."""
    kv_tokens, total = max(kv_tokens, KV_FLOOR_TOKENS), round(total_gb * GB) or None
    if not folder.is_dir():
        return Budget(kv_tokens=kv_tokens, total_bytes=total)
    slots = max(1, round(share * FtwReader(folder).num_records))
    return Budget(kv_tokens=kv_tokens, expert_slots=slots, total_bytes=total)


def _is_in_memory(folder: Path) -> bool:
    return bool(FtwReader(folder).config.get("synthetic", {}).get("in_memory"))
