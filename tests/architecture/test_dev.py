"""The one door: what it understands, and what it does not overlook."""

import argparse

import pytest

import dev


@pytest.mark.parametrize("build", ["cpu", "cuda"])
@pytest.mark.parametrize("behind", [False, True])
def test_main_when_a_build_is_named_then_it_counts_before_and_behind_the_verb(
    monkeypatch: pytest.MonkeyPatch, build: str, behind: bool
) -> None:
    """And never reaches what the verb starts; other words do, in their order."""
    seen: list[tuple[argparse.Namespace, list[str]]] = []

    def act(options: argparse.Namespace, rest: list[str]) -> int:
        """Note it."""
        seen.append((options, rest))
        return 0

    monkeypatch.setitem(dev.VERBS, "test", act)
    monkeypatch.chdir(dev.ROOT)
    words = ["test", f"--{build}"] if behind else [f"--{build}", "test"]
    monkeypatch.setattr("sys.argv", ["dev.py", *words, "tests/kernels", "-k", "a or b", "--c"])
    assert dev.main() == 0
    ((options, rest),) = seen
    assert (options.cpu, options.cuda) == (build == "cpu", build == "cuda")
    assert rest == ["tests/kernels", "-k", "a or b", "--c"]


def test_lint_when_a_step_crashes_then_all_run_and_it_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A killed process has a negative code, which is not "less than" success."""
    codes = iter([0, -11, 0, 0, 0])
    monkeypatch.setattr(dev, "install", lambda *_: 0)
    monkeypatch.setattr(dev, "python", lambda *_: next(codes))
    assert dev.lint(argparse.Namespace(), []) == 1
    assert next(codes, None) is None


@pytest.mark.parametrize(
    ("found", "named", "nvidia", "steps"),
    [
        ("", "", False, ["install cpu"]),
        ("", "", True, ["install cuda"]),
        ("", "cpu", True, ["install cpu"]),
        ("cpu", "", True, []),
        ("cpu", "cpu", True, []),
        ("cpu", "cuda", False, ["uninstall", "install cuda"]),
        ("cuda", "cpu", True, ["uninstall", "install cpu"]),
    ],
)
def test_torch_when_another_build_is_named_then_it_takes_the_place_of_the_old_one(
    monkeypatch: pytest.MonkeyPatch, found: str, named: str, nvidia: bool, steps: list[str]
) -> None:
    """What is there stays, unless the person names the other build."""
    done: list[str] = []

    def python(*words: str) -> int:
        done.append(words[2])
        return 0

    def pip(*words: str) -> int:
        done.append("install cpu" if dev.TORCH_CPU_INDEX in words else "install cuda")
        return 0

    monkeypatch.setattr(dev, "torch_build", lambda: found)
    monkeypatch.setattr(dev, "has_nvidia", lambda: nvidia)
    monkeypatch.setattr(dev, "python", python)
    monkeypatch.setattr(dev, "pip", pip)
    options = argparse.Namespace(cpu=named == "cpu", cuda=named == "cuda")
    assert dev.install_torch(options) == 0
    assert done == steps
