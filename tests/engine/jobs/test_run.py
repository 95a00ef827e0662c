"""A job process from outside: events, JobDone or Error last, cancel, exit codes."""

import signal
import sys

import pytest

from engine.jobs.registry import JOBS, get_job
from engine.protocol.errors import ErrorCode, InvalidRequest
from engine.protocol.messages import Error, JobDone, ProfilePoint, Progress
from tests.e2e.engine_process import engine

pytestmark = pytest.mark.weights


def _job(home, name, spec):
    import json

    return engine(home, "--job", name, "--spec", json.dumps(spec))


def test_every_job_of_the_registry_has_a_run():
    """And an unknown one is named with those there are."""
    assert all(callable(get_job(name)) for name in JOBS)
    with pytest.raises(InvalidRequest, match="paint"):
        get_job("paint")


def test_job_that_ends_well_says_job_done_last(converted_home):
    """Verify of a good model; the exit code is 0."""
    spec = {"model": str(converted_home.models / "tiny-moe-fp8"), "id": "v"}
    with _job(converted_home.root, "verify", spec) as process:
        done = process.wait(JobDone)
        assert done.result["num_records"] == 192
        assert process.end() == 0
        assert process.heard[-1] is done


def test_job_that_fails_says_error_last_and_exits_with_1(converted_home, tmp_path):
    """On stdout as an event, on stderr as the last line."""
    with _job(converted_home.root, "verify", {"model": str(tmp_path)}) as process:
        error = process.wait(Error)
        assert error.code is ErrorCode.UNSUPPORTED_CHECKPOINT
        assert process.end() == 1
        assert process.heard[-1] is error
    with _job(converted_home.root, "paint", {}) as process:
        assert process.wait(Error).code is ErrorCode.INVALID_REQUEST
        assert process.end() == 1


@pytest.mark.parametrize("how", ["eof", "term"])
def test_cancelled_conversion_leaves_nothing_and_exits_with_5(builtin_model, tmp_path, how):
    """The end of stdin, or SIGTERM; the source stays as it is."""
    if how == "term" and sys.platform == "win32":
        pytest.skip("Windows has no SIGTERM to send")
    before = {p.name: p.stat().st_mtime_ns for p in builtin_model.iterdir()}
    target = tmp_path / "out" / "model"
    spec = {"source": str(builtin_model), "target": str(target), "id": "c"}
    with _job(tmp_path / "home", "convert", spec) as process:
        process.wait(Progress, stage="convert")
        if how == "term":
            process.process.send_signal(signal.SIGTERM)
            process.wait(Error, code=ErrorCode.CANCELLED)
        assert process.end() == 5
        assert process.heard[-1].code is ErrorCode.CANCELLED
    assert not target.exists()
    assert not list(target.parent.iterdir())
    assert before == {p.name: p.stat().st_mtime_ns for p in builtin_model.iterdir()}


def test_cancelled_profile_stops_between_measurements(converted_home, tmp_path):
    """Nothing is stored."""
    spec = {"mode": "quick", "device": "cpu", "output": str(tmp_path / "p"), "id": "p"}
    with _job(converted_home.root, "profile", spec) as process:
        process.wait(ProfilePoint)
        assert process.end() == 5
    assert not (tmp_path / "p").exists()
