"""Decode speed of our engine beside transformers: same model, same cores, one run.

`dev.py bench`. Prints tokens per second and the ratio to transformers' best. The contenders take
turns (A B C C B A), so that a machine that warms up or throttles favours none. All compute in
float32 from the same FP8 checkpoint and decode greedily. transformers runs in a process of its own,
once with one thread and once with all cores; its forward is called directly, because `generate`
would only add to its time.
"""

import argparse
import json
import multiprocessing
import queue
import statistics
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Protocol

import torch
from safetensors import safe_open

from engine.protocol.messages import (
    ChatMessage,
    Error,
    Event,
    Finished,
    Generate,
    Load,
    Loaded,
    Part,
    Sampling,
    Shutdown,
)
from engine.quant.registry import get_format
from engine.service import EngineService
from engine.settings import read_settings
from engine.text.chat import ChatText

MODEL = Path(__file__).resolve().parents[2] / "resources" / "models" / "tiny-moe-fp8"
PROMPT = (ChatMessage(role="user", parts=(Part(text="Tell me a story about a fox and a river."),)),)


def main() -> int:
    """Measure and print; `--json FILE` keeps the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0, help="of ours; 0 = its own choice")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    cores = torch.get_num_threads()
    names = {f"transformers, {n} threads": n for n in sorted({1, cores})}
    with ExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory())
        contenders: dict[str, Contender] = {
            "ours": stack.enter_context(Ours(home, options.threads)),
            **{name: stack.enter_context(TheirProcess(n)) for name, n in names.items()},
        }
        runs: dict[str, list[float]] = {name: [] for name in contenders}
        for contender in contenders.values():
            contender.decode(16)
        for _ in range(options.rounds):
            for name in (*contenders, *reversed(contenders)):
                runs[name].append(contenders[name].decode(options.tokens))
    medians = {name: statistics.median(rates) for name, rates in runs.items()}
    ratio = medians["ours"] / max(medians[name] for name in names)
    print(f"{cores} cores, {options.tokens} tokens, torch {torch.__version__}")
    for name, rates in runs.items():
        spread = f"{min(rates):.1f} .. {max(rates):.1f}"
        print(f"{name:25} {medians[name]:7.1f} tok/s   ({spread})")
    print(f"{'ratio to their best':25} {ratio:7.2f}")
    if options.json:
        options.json.write_text(json.dumps({"runs": runs, "ratio": ratio}, indent=1))
    return 0


class Contender(Protocol):
    """Something that decodes."""

    def decode(self, num_tokens: int) -> float:
        """Generate greedily; return the rate without prefill, tokens per second."""
        ...


class Ours:
    """The real service in a thread, with the built-in model."""

    def __init__(self, home: str, threads: int) -> None:
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        settings = read_settings(["--home", home, "--threads", str(threads)])
        self._service = EngineService(self._events.put, settings)
        self._thread = threading.Thread(target=self._service.run, name="engine")
        self._count = 0

    def __enter__(self) -> "Ours":
        self._thread.start()
        self._service.handle(Load(id="load", model="builtin"))
        self._until(Loaded, "load")
        return self

    def __exit__(self, *_: object) -> None:
        self._service.handle(Shutdown())
        self._thread.join(timeout=60)

    def decode(self, num_tokens: int) -> float:
        """Generate greedily; return the rate without prefill, tokens per second."""
        self._count += 1
        sampling = Sampling(temperature=0.0, max_tokens=num_tokens, ignore_eos=True)
        name = f"run-{self._count}"
        self._service.handle(Generate(id=name, messages=PROMPT, sampling=sampling))
        finished = self._until(Finished, name)
        assert isinstance(finished, Finished)
        return finished.trace.decode_tokens_per_s

    def _until(self, kind: type, name: str) -> Event:
        while True:
            event = self._events.get(timeout=300)
            if isinstance(event, Error):
                sys.exit(f"{event.message} {event.hint}")
            if isinstance(event, kind) and getattr(event, "id", "") == name:
                return event


class TheirProcess:
    """transformers in a process of its own, so that thread settings do not mix."""

    def __init__(self, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, end = context.Pipe()
        self._process = context.Process(target=_serve, args=(end, threads), daemon=True)

    def __enter__(self) -> "TheirProcess":
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.send(0)
        self._process.join(timeout=60)

    def decode(self, num_tokens: int) -> float:
        """Generate greedily; return the rate without prefill, tokens per second."""
        self._pipe.send(num_tokens)
        return float(self._pipe.recv())


def _serve(pipe: Connection, threads: int) -> None:
    torch.set_num_threads(threads)
    theirs = Theirs(MODEL)
    while num_tokens := pipe.recv():
        pipe.send(theirs.decode(num_tokens))


class Theirs:
    """transformers' own model over the same weights, dequantised to float32."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoConfig, AutoModelForCausalLM

        config = AutoConfig.from_pretrained(folder)
        del config.quantization_config
        config.dtype = "float32"
        self._model = AutoModelForCausalLM.from_config(config).eval()
        missing = self._model.load_state_dict(_fused(_dequantised(folder), config), strict=False)
        assert set(missing.missing_keys) <= {"lm_head.weight"}, missing
        self._model.tie_weights()
        self._prompt = torch.tensor([ChatText.from_folder(folder).prompt_ids(PROMPT)])

    @torch.inference_mode()
    def decode(self, num_tokens: int) -> float:
        """Generate greedily; return the rate without prefill, tokens per second."""
        out = self._model(self._prompt, use_cache=True)
        cache, token = out.past_key_values, out.logits[:, -1:].argmax(-1)
        start = time.perf_counter()
        for _ in range(num_tokens - 1):
            out = self._model(token, past_key_values=cache, use_cache=True)
            token = out.logits[:, -1:].argmax(-1)
        return (num_tokens - 1) / (time.perf_counter() - start)


def _dequantised(folder: Path) -> dict[str, torch.Tensor]:
    stored: dict[str, torch.Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            stored.update({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118  no mapping
    quant = get_format("fp8_block")
    return {
        name: quant.dense(tensor, stored.get(f"{name}_scale_inv")).dequantise()
        for name, tensor in stored.items()
        if not name.endswith("_scale_inv")
    }


def _fused(weights: dict[str, torch.Tensor], config: object) -> dict[str, torch.Tensor]:
    """Stack experts as transformers 5 keeps them: gate_up_proj [E, 2I, H], down_proj [E, H, I]."""
    num_experts = config.num_experts  # type: ignore[attr-defined]
    out = {name: tensor for name, tensor in weights.items() if ".experts." not in name}
    for layer in range(config.num_hidden_layers):  # type: ignore[attr-defined]
        base = f"model.layers.{layer}.mlp.experts"
        part = {
            word: torch.stack(
                [weights[f"{base}.{e}.{word}_proj.weight"] for e in range(num_experts)]
            )
            for word in ("gate", "up", "down")
        }
        out[f"{base}.gate_up_proj"] = torch.cat([part["gate"], part["up"]], dim=1)
        out[f"{base}.down_proj"] = part["down"]
    return out


if __name__ == "__main__":
    raise SystemExit(main())
