"""Decode speed of our engine beside transformers: same model, same cores, one run.

`dev.py bench`. Prints tokens per second of both and their ratio; the engines take turns (A B B A)
so that a machine that warms up or throttles favours neither. Both get float32 weights of the same
FP8 checkpoint and decode greedily; transformers runs its own forward with a key-value cache, without
`generate`, which would only add to its time.
"""

import argparse
import json
import queue
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

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
    parser.add_argument("--rounds", type=int, default=2, help="A B B A rounds")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as home, Ours(home, options.threads) as ours:
        theirs = Theirs(MODEL)
        runs: dict[str, list[float]] = {"ours": [], "transformers": []}
        for engine in (ours, theirs):
            engine.decode(16)
        for _ in range(options.rounds):
            for name in ("ours", "transformers", "transformers", "ours"):
                rate = (ours if name == "ours" else theirs).decode(options.tokens)
                runs[name].append(rate)
    medians = {name: statistics.median(rates) for name, rates in runs.items()}
    ratio = medians["ours"] / medians["transformers"]
    print(f"threads {options.threads}, {options.tokens} tokens, torch {torch.__version__}")
    for name, rates in runs.items():
        spread = f"{min(rates):.1f} .. {max(rates):.1f}"
        print(f"{name:13} {medians[name]:7.1f} tok/s   ({spread})")
    print(f"ratio         {ratio:7.2f}")
    if options.json:
        options.json.write_text(json.dumps({"runs": runs, "ratio": ratio}, indent=1))
    return 0


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
        name: quant.dequantize(tensor, stored.get(f"{name}_scale_inv"))
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
