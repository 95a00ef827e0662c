"""Which experts the built-in model picks over varied chats: test data for cache policies.

Stored as .npz: for each chat `chat-NN` int16 [tokens, layers, top_k], in the order of the router's
preference, prompt and reply, and `prompt-NN` with the number of prompt tokens.
"""

from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import torch

from recipe import synth
from recipe.chat import Turn
from recipe.evaluate import Subject, thirty

NUM_CHATS = 20


def chats(seed: int = 7) -> list[list[Turn]]:
    """Return twenty openings: some of the thirty questions, and conversations that go on."""
    rng = Random(seed)
    found = thirty()[1:28:2][:12]
    for family in ("story_talk", "remember", "chain", "story_talk") * 2:
        turns = synth.TRAINING[family][0](rng)
        found.append([*turns[:-1]])
    return found[:NUM_CHATS]


@torch.inference_mode()
def trace(folder: Path, target: Path, log: Callable[[str], None]) -> None:
    """Chat with the model in `folder` and store what its routers picked."""
    subject = Subject(folder, torch.device("cpu"))
    model, top_k = subject.model, subject.model.config.num_experts_per_tok
    picked: list[torch.Tensor] = []
    hooks = [
        layer.mlp.gate.register_forward_hook(
            lambda _module, inputs, _out, gate=layer.mlp.gate: picked.append(
                (inputs[0].reshape(-1, gate.weight.shape[1]) @ gate.weight.t()).topk(top_k)[1]
            )
        )
        for layer in model.model.layers
    ]
    arrays: dict[str, np.ndarray] = {}
    for number, (turns, reply) in enumerate(
        zip(chats(), subject.replies(chats(), seed=3, rows=1), strict=True)
    ):
        picked.clear()
        prompt = subject.tokenizer.apply_chat_template(
            [{"role": turn.role, "content": turn.text} for turn in turns],
            tokenize=False,
            add_generation_prompt=True,
        )
        ids = subject.tokenizer(prompt + reply, return_tensors="pt", add_special_tokens=False)
        model(ids["input_ids"])
        arrays[f"chat-{number:02d}"] = torch.stack(picked, 1).to(torch.int16).numpy()
        size = len(subject.tokenizer(prompt, add_special_tokens=False)["input_ids"])
        arrays[f"prompt-{number:02d}"] = np.array(size, np.int32)
    for hook in hooks:
        hook.remove()
    np.savez_compressed(target, **arrays)
    tokens = sum(a.shape[0] for name, a in arrays.items() if name.startswith("chat"))
    log(f"{NUM_CHATS} chats, {tokens} tokens, {target.stat().st_size} bytes")
