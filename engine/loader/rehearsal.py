"""A short prompt before the first person asks: libraries load and kernels compile during the load.

Without it that person waits seconds for a first word. Called by `engine.loader.open`.
"""

from engine.forward import PAGE_TOKENS
from engine.moe.device_experts import DeviceExperts
from engine.protocol.messages import Sampling
from engine.runner.model_runner import ModelRunner
from engine.runner.work import RowWork

_GREEDY = Sampling(temperature=0.0)


def rehearse(runner: ModelRunner, experts: DeviceExperts, top_k: int) -> None:
    """Read one page of a prompt. Its keys and values lie in page 0, which nobody owns yet.

    Raises: what a prompt raises; InternalError if the model's output is not a number.
    """
    experts.prepare(top_k, runner.dtype)
    runner.open_row(0, _GREEDY, 0, ())
    try:
        tokens = (0,) * PAGE_TOKENS
        runner.launch("prefill", [RowWork(0, tokens, 0, (0,), sample=True)]).wait()
    finally:
        runner.close_row(0)
