"""What `tests.installers.card` insists on, without a card: each check must be able to fail."""

from pathlib import Path
from typing import Any

import pytest

from engine.protocol.messages import Status
from tests.golden.transcript import read
from tests.installers import card

KERNELS = {"grouped_experts": "triton: fast", "decode": "captured: one graph a step"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data root as a run on a card leaves it; the conversation was the recorded one."""
    monkeypatch.setattr(card, "essence", lambda events: read())
    for name in card.KERNELS:
        (tmp_path / "caches" / "triton" / name).mkdir(parents=True)
        (tmp_path / "caches" / "triton" / name / f"{name}.cubin").touch()
    (tmp_path / "caches" / "kernels").mkdir()
    (tmp_path / "caches" / "kernels" / "moe-sm_90-0").touch()
    return tmp_path


def status(**changes: str) -> list[Any]:
    return [Status(id="p", kernels={**KERNELS, **changes})]


def test_run_when_all_was_used_then_it_is_listed(home: Path) -> None:
    """Triton for prompts, captured steps for replies, NVRTC for their kernels."""
    lines = card.check(status(), home, "cuda")
    assert "grouped_experts: triton: fast" in lines
    assert any("gate_up" in line and "rms_norm" in line for line in lines)
    assert "compiled by NVRTC: 1 sources" in lines


def test_run_when_the_conversation_differs_then_it_fails(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single other text is enough."""
    changed = [{**line, "text": "?"} if line["type"] == "delta" else line for line in read()]
    monkeypatch.setattr(card, "essence", lambda events: changed)
    with pytest.raises(card.Failed, match="Another conversation"):
        card.check(status(), home, "cuda")


def test_run_when_prompts_went_another_way_then_it_fails(home: Path) -> None:
    """Plain torch gives the same text, more slowly."""
    (home / "caches" / "triton" / "down" / "down.cubin").unlink()
    with pytest.raises(card.Failed, match="Triton's down"):
        card.check(status(), home, "cuda")
    assert card.check(status(), home, "cpu")


def test_run_when_a_c_compiler_was_used_then_it_fails(home: Path) -> None:
    """Triton's own launcher would be such a file."""
    (home / "caches" / "triton" / "cuda_utils.so").touch()
    with pytest.raises(card.Failed, match="C compiler"):
        card.check(status(), home, "cuda")


def test_run_when_layer_by_layer_then_it_fails(home: Path) -> None:
    """The slow way works, too, and is not what is to be shown."""
    with pytest.raises(card.Failed, match="captured"):
        card.check(status(decode="layer by layer: no compiler"), home, "cuda")
