"""What the recipe needs of the accelerator, apart: graphs, seeds, waiting. Runs on a CPU too."""

from collections.abc import Callable

import torch


def pick(name: str) -> torch.device:
    """Return the device called `name`; "auto" takes an accelerator if there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"  # noqa: TID251  no engine here
    return torch.device(name)


def wait(device: torch.device) -> None:
    """Return when all queued work is done."""
    if device.type == "cuda":
        torch.cuda.synchronize()  # noqa: TID251


def facts(device: torch.device) -> str:
    """Return a short description for the log."""
    if device.type != "cuda":
        return f"cpu, torch {torch.__version__}"
    return f"{torch.cuda.get_device_name()}, torch {torch.__version__}"  # noqa: TID251


def captured(step: Callable[[], None], device: torch.device) -> tuple[Callable[[], None], str]:
    """Return `step` as one graph replay where that works, else `step` itself, and which.

    `step` must only change tensors that it keeps. It is called three times on the way.
    """
    if device.type != "cuda":
        return step, "eager"
    try:
        stream = torch.cuda.Stream()  # noqa: TID251
        stream.wait_stream(torch.cuda.current_stream())  # noqa: TID251
        with torch.cuda.stream(stream):  # noqa: TID251
            step()
            step()
        torch.cuda.current_stream().wait_stream(stream)  # noqa: TID251
        graph = torch.cuda.CUDAGraph()  # noqa: TID251
        with torch.cuda.graph(graph):  # noqa: TID251
            step()
    except RuntimeError as error:
        return step, f"eager, no graph: {error}"
    return graph.replay, "graph"
