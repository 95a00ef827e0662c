"""`python -m engine` as a process: hello, stray prints, ends, kill, exit codes."""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from engine.protocol.errors import ErrorCode
from engine.protocol.messages import (
    Cancel,
    Error,
    Finished,
    FinishReason,
    Heartbeat,
    Hello,
    Load,
    Loaded,
    MissPolicy,
    Ready,
    Resize,
    ResizeApplied,
    SetPolicy,
    Shutdown,
    Started,
    StateChanged,
    TokenDelta,
    decode_event,
    encode,
)
from tests.e2e.engine_process import REPOSITORY, EngineProcess, ask, engine

pytestmark = pytest.mark.weights
POEM = "Tell me a long story about a fox and a bear."


def test_hello_is_answered_without_torch_and_eof_ends_the_engine(tmp_path):
    """Quick to start, quick to go; nothing but the data root is written."""
    with engine(tmp_path / "home") as process:
        process.send(Hello(client="test"))
        ready = process.wait(Ready)
        assert ready.pid == process.process.pid
        assert ready.devices[0].name == "cpu"
        assert process.end() == 0
    check = (
        "import sys, engine.pipe.host, engine.service, engine.__main__\n"
        "bad = [m for m in ('torch', 'transformers', 'app') if m in sys.modules]\n"
        "raise SystemExit(f'imported: {bad}' if bad else 0)"
    )
    subprocess.run([sys.executable, "-c", check], cwd=REPOSITORY, check=True, timeout=60)


def test_hello_of_another_version_exits_with_2_and_repeats_the_error(tmp_path):
    """One sentence on both channels."""
    with engine(tmp_path) as process:
        process.send(Hello(protocol_version=99))
        assert process.wait(Error).code is ErrorCode.PROTOCOL
        assert process.end() == 2
        last = process.stderr.strip().splitlines()[-1]
        assert decode_event(last.encode()).code is ErrorCode.PROTOCOL


def test_bad_arguments_exit_with_a_sentence(tmp_path):
    """Not argparse's usage text with code 2, which means something else here."""
    with engine(tmp_path, "--threads", "many") as process:
        assert process.end() == 1
        last = process.stderr.strip().splitlines()[-1]
        assert "--threads" in decode_event(last.encode()).message


def test_stray_prints_of_python_and_c_do_not_reach_the_protocol(tmp_path):
    """fd 1 is claimed first: `print`, `os.write(1)` and C's `puts` land on stderr."""
    program = (
        "import ctypes, os, sys\n"
        "from engine.pipe import stdio\n"
        "fd = stdio.claim_stdout()\n"
        "print('stray print', flush=True)\n"
        "os.write(1, b'stray write\\n')\n"
        "libc = ctypes.CDLL(None if os.name != 'nt' else 'msvcrt')\n"
        "libc.puts(b'stray puts'); libc.fflush(None)\n"
        "os.write(fd, b'{}\\n')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, timeout=60
    )
    assert done.stdout == b"{}\n"
    for word in (b"stray print", b"stray write", b"stray puts"):
        assert word in done.stderr


def test_session_with_load_cancel_and_shutdown(converted_home):
    """Cancel during the load and during a reply, then Shutdown during another (case G-10)."""
    with engine(converted_home.root) as process:
        process.send(
            Hello(),
            Load(id="load", model="builtin"),
            ask("never", POEM),
            ask("first", POEM, max_tokens=400),
            Cancel(id="never"),
        )
        assert process.wait(Finished).id == "never"
        assert not process.all(Loaded)
        process.wait(TokenDelta, id="first")
        process.send(Cancel(id="first"))
        assert process.wait(Finished, id="first").reason is FinishReason.CANCELLED
        process.send(ask("second", POEM, max_tokens=2000))
        process.wait(TokenDelta, id="second")
        process.send(Shutdown())
        assert process.wait(Finished, id="second").reason is FinishReason.CANCELLED
        assert process.end() == 0
        ends = [event.id for event in process.all(Finished)]
        assert sorted(ends) == ["first", "never", "second"]
        assert process.all(StateChanged)[-1].state == "stopping"


def test_reply_under_resizes_and_policies_is_identical(converted_home):
    """Grow, shrink, both pools, every policy, while it streams: not one token differs."""
    plain = {"temperature": 0.9, "top_k": 50, "seed": 3, "max_tokens": 60}
    with engine(converted_home.root) as process:
        process.send(Load(id="load", model="builtin"), ask("plain", POEM, **plain))
        record_bytes = process.wait(Loaded, id="load").model.record_bytes
        process.wait(Finished, id="plain")
        process.send(ask("moved", POEM, **plain))
        sizes = [(4, 2048), (192, 512), (32, 256), (150, 1024)]
        for number, (slots, tokens) in enumerate(sizes):
            process.wait(TokenDelta, id="moved")
            process.send(
                Resize(id=f"r{number}", expert_slots=slots, kv_tokens=tokens),
                SetPolicy(id=f"p{number}", policy=list(MissPolicy)[number % 3]),
            )
            applied = process.wait(ResizeApplied, id=f"r{number}")
            assert (applied.expert_slots, applied.kv_tokens) == (slots, tokens)
            assert applied.expert_bytes == slots * record_bytes
        process.wait(Finished, id="moved")
        assert process.end() == 0
        texts = [
            "".join(event.text for event in process.all(TokenDelta) if event.id == name)
            for name in ("plain", "moved")
        ]
        assert texts[0] == texts[1]
        assert len(texts[0]) > 100


def test_cancelled_load_stops_and_another_works(converted_home):
    """Also while torch is being imported; heartbeats go on meanwhile."""
    with engine(converted_home.root) as process:
        process.send(Load(id="a", model="builtin"), Cancel(id="a"))
        assert process.wait(Error).code is ErrorCode.CANCELLED
        process.send(Load(id="b", model="tiny-moe-fp8"))
        process.wait(Loaded, id="b")
        process.wait(Heartbeat)
        assert process.end() == 0


def test_load_of_nothing_names_the_folder_and_the_engine_stays(tmp_path):
    """A wrong path is an answer, not an end; nor is a device that is not there."""
    (tmp_path / "plain").mkdir()
    with engine(tmp_path / "home") as process:
        process.send(
            Load(id="a", model=str(tmp_path / "nowhere")),
            Load(id="b", model=str(tmp_path / "plain")),
            Load(id="c", model="builtin", devices=("tpu",)),
        )
        assert process.wait(Error, id="a").code is ErrorCode.FILE_ACCESS
        assert process.wait(Error, id="b").code is ErrorCode.UNSUPPORTED_CHECKPOINT
        process.send(Hello())
        process.wait(Ready)
        process.process.kill()


@pytest.mark.linux
@pytest.mark.skipif(sys.platform != "linux", reason="needs SIGKILL")
def test_engine_killed_during_a_reply_leaves_whole_lines(converted_home):
    """Case A-20: what was said until then can be read; the exit is no clean one."""
    with engine(converted_home.root) as process:
        process.send(Load(id="load", model="builtin"), ask("a", POEM, max_tokens=2000))
        process.wait(TokenDelta, id="a")
        os.kill(process.process.pid, signal.SIGKILL)
        text = "".join(e.text for e in process.events() if isinstance(e, TokenDelta))
        assert process.process.wait(30) == -signal.SIGKILL
        assert not process.all(Finished)
        assert process.all(TokenDelta)
        assert text is not None


def test_reader_that_goes_away_ends_the_engine_at_once(converted_home):
    """Case A-01: a broken stdout means that the app is gone: no draining of a long reply."""
    out, into = os.pipe()
    process = EngineProcess(converted_home.root, stdout=into)
    os.close(into)
    try:
        process.send(Load(id="load", model="builtin"), ask("a", POEM, max_tokens=2000))
        with os.fdopen(out, "rb") as stream:
            for line in stream:
                if isinstance(decode_event(line), Started):
                    break
        assert process.process.wait(30) == 0
    finally:
        process.close()


@pytest.mark.linux
@pytest.mark.skipif(sys.platform != "linux", reason="needs SIGKILL")
def test_app_killed_during_a_reply_takes_the_engine_with_it(converted_home):
    """Case A-01: no orphan goes on computing; the memory is free again."""
    program = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-m', 'engine'], stdin=subprocess.PIPE)\n"
        "child.stdin.write(sys.stdin.buffer.read()); child.stdin.flush()\n"
        "time.sleep(600)\n"
    )
    app = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=REPOSITORY,
        env={**os.environ, "FREETOKEN_HOME": str(converted_home.root), "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        commands = (Hello(), Load(id="l", model="builtin"), ask("a", POEM, max_tokens=2000))
        app.stdin.write(b"".join(encode(command) for command in commands))
        app.stdin.close()
        pid = 0
        for line in app.stdout:
            event = decode_event(line)
            pid = event.pid if isinstance(event, Ready) else pid
            if isinstance(event, TokenDelta):
                break
        child = psutil.Process(pid)
        app.kill()
        child.wait(30)
    finally:
        app.kill()
        app.wait()
        app.stdout.close()
