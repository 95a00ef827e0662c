"""Judge a model folder with transformers: bits per character, loop rate, thirty fixed replies.

Works on any `Qwen3MoeForCausalLM` folder in FP8 blocks, so old and new models are measured by the
same code on the same texts. Runs on a CPU in a few minutes.
"""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from recipe.chat import Turn, open_turn, render
from recipe.export import dequantise
from recipe.sources import DATA

NUM_LOOP_PROMPTS = 200


class Subject:
    """A model folder, loaded by transformers from its dequantised weights.

    Raises: ValueError if a weight of the model is missing in the folder.
    """

    def __init__(self, folder: Path, device: torch.device) -> None:
        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.generation = json.loads((folder / "generation_config.json").read_text())
        config = AutoConfig.from_pretrained(folder)
        del config.quantization_config
        config.dtype = "float32"
        self.model = AutoModelForCausalLM.from_config(config).eval()
        weights = _fused(_plain(folder), config.num_hidden_layers, config.num_experts)
        found = self.model.load_state_dict(weights, strict=False)
        missing = set(found.missing_keys) - {"lm_head.weight"}
        if missing or found.unexpected_keys:
            raise ValueError(f"missing {sorted(missing)}, unknown {found.unexpected_keys}")
        self.model.tie_weights()
        self.model.to(device)
        self.device = device

    @torch.inference_mode()
    def bits(self, turns: Sequence[Turn]) -> tuple[float, int]:
        """Return the bits of the assistant's texts with their end marks, and their characters."""
        text, spans = "", []
        for turn in turns:
            text += open_turn(turn.role)
            if turn.role == "assistant":
                spans.append((len(text), len(text) + len(turn.text) + len("<|im_end|>")))
            text += f"{turn.text}<|im_end|>\n"
        coded = self.tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
        ids = torch.tensor([coded["input_ids"]], device=self.device)
        odds = self.model(ids).logits[0, :-1].float().log_softmax(-1)
        got = odds.gather(1, ids[0, 1:, None]).squeeze(1).cpu()
        counted = torch.tensor(
            [any(a <= start < b for a, b in spans) for start, _ in coded["offset_mapping"][1:]]
        )
        chars = sum(len(turn.text) + 1 for turn in turns if turn.role == "assistant")
        return -got[counted].sum().item() / math.log(2), chars

    @torch.inference_mode()
    def replies(self, prompts: Sequence[Sequence[Turn]], seed: int, rows: int = 50) -> list[str]:
        """Return one reply to each conversation with the folder's own generation settings."""
        torch.manual_seed(seed)
        told: list[str] = []
        self.tokenizer.padding_side = "left"
        for at in range(0, len(prompts), rows):
            texts = [render(list(p), reply=True) for p in prompts[at : at + rows]]
            coded = self.tokenizer(
                texts, return_tensors="pt", padding=True, add_special_tokens=False
            ).to(self.device)
            coded.pop("token_type_ids", None)
            out = self.model.generate(**coded, **self.generation)
            new = out[:, coded["input_ids"].shape[1] :]
            told += self.tokenizer.batch_decode(new, skip_special_tokens=True)
        return told


def _plain(folder: Path) -> dict[str, Tensor]:
    stored: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            stored |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    plain = {}
    for name, weight in stored.items():
        if name.endswith("_scale_inv"):
            continue
        scale = stored.get(f"{name}_scale_inv")
        plain[name] = weight.float() if scale is None else dequantise(weight, scale)
    return plain


def _fused(weights: dict[str, Tensor], num_layers: int, num_experts: int) -> dict[str, Tensor]:
    """Stack experts as transformers 5 keeps them."""
    fused = {name: weight for name, weight in weights.items() if ".experts." not in name}
    for layer in range(num_layers):
        at = f"model.layers.{layer}.mlp.experts"
        gate, up, down = (
            torch.stack([weights[f"{at}.{e}.{part}_proj.weight"] for e in range(num_experts)])
            for part in ("gate", "up", "down")
        )
        fused[f"{at}.gate_up_proj"] = torch.cat([gate, up], 1)
        fused[f"{at}.down_proj"] = down
    return fused


def held_out(path: Path) -> list[tuple[str, list[Turn]]]:
    """Return the held-out conversations."""
    rows = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return [(family, [Turn(*turn) for turn in turns]) for family, turns in rows]


def bits_per_character(
    subject: Subject, docs: Sequence[tuple[str, list[Turn]]]
) -> dict[str, float]:
    """Return bits per character of each family, of the teacher's ones, and of all characters."""
    bits: dict[str, float] = defaultdict(float)
    chars: dict[str, int] = defaultdict(int)
    for family, turns in docs:
        some, count = subject.bits(turns)
        for key in (family, "ALL", *(("TEACHER",) if family.endswith("~") else ())):
            bits[key] += some
            chars[key] += count
    return {key: bits[key] / chars[key] for key in sorted(bits)}


def loops(reply: str) -> bool:
    """Return whether a reply loops: some four words in a row come at least three times."""
    words = reply.lower().split()
    grams = Counter(zip(words, words[1:], words[2:], words[3:], strict=False))
    return bool(grams) and max(grams.values()) >= 3


def loop_prompts(docs: Sequence[tuple[str, list[Turn]]]) -> list[list[Turn]]:
    """Return held-out questions, spread evenly over the families."""
    queues: dict[str, list[list[Turn]]] = defaultdict(list)
    for family, turns in docs:
        queues[family].append([turns[0]])
    picked: list[list[Turn]] = []
    while len(picked) < NUM_LOOP_PROMPTS and any(queues.values()):
        for queue in queues.values():
            if queue and len(picked) < NUM_LOOP_PROMPTS:
                picked.append(queue.pop(0))
    return picked


def thirty() -> list[list[Turn]]:
    """Return the thirty fixed questions."""
    texts = json.loads((DATA / "thirty.json").read_text(encoding="utf-8"))
    return [[Turn("user", text)] for text in texts]


def evaluate(
    folder: Path,
    held_out_file: Path,
    target: Path,
    device: torch.device,
    log: Callable[[str], None],
    per_family: int = 100,
) -> dict[str, object]:
    """Measure one model folder and store everything at `target`."""
    subject, docs = Subject(folder, device), held_out(held_out_file)
    seen: Counter[str] = Counter()
    few = []
    for family, turns in docs:
        seen[family] += 1
        if seen[family] <= per_family:
            few.append((family, turns))
    rates = bits_per_character(subject, few)
    for family, rate in rates.items():
        log(f"  {family:14} {rate:.4f} bits per character")
    asked = loop_prompts(docs)
    told = subject.replies(asked, seed=1)
    looping = sum(map(loops, told)) / len(told)
    log(f"  loops in {looping:.1%} of {len(told)} replies")
    answers = subject.replies(thirty(), seed=2)
    result: dict[str, object] = {
        "model": folder.name,
        "bits_per_character": rates,
        "loop_rate": looping,
        "looping": [[p[0].text, r] for p, r in zip(asked, told, strict=True) if loops(r)],
        "held_out_replies": [[p[0].text, r] for p, r in zip(asked, told, strict=True)],
        "thirty": [[p[0].text, r] for p, r in zip(thirty(), answers, strict=True)],
        "generation": subject.generation,
    }
    target.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result
