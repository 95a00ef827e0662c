"""Job: read a whole FTW folder and check every record, tensor and copied file.

Spec: {"model": path, "id": str}. Result: path, num_records, num_tensors, num_bytes.
"""

from collections.abc import Callable
from typing import Any

from engine.checkpoint.verify import verify_folder
from engine.jobs.convert import read_path
from engine.protocol.messages import Event, Progress


def run(
    spec: dict[str, Any], emit: Callable[[Event], None], cancelled: Callable[[], bool]
) -> dict[str, Any]:
    """Run the job; stage of its progress: "verify".

    Raises: CorruptCheckpoint naming what is damaged, UnsupportedCheckpoint, FileAccess, Cancelled,
        InvalidRequest for a spec without a path.
    """
    job_id = str(spec.get("id", ""))
    folder = read_path(spec, "model")

    def tell(done: int, total: int) -> None:
        emit(Progress(id=job_id, stage="verify", done_bytes=done, total_bytes=total))

    found = verify_folder(folder, tell, cancelled)
    return {
        "path": str(folder),
        "num_records": found.num_records,
        "num_tensors": found.num_tensors,
        "num_bytes": found.num_bytes,
    }
