"""Arguments and environment become settings; arguments win, nonsense is named."""

from pathlib import Path

import pytest

from engine.protocol.errors import InvalidRequest
from engine.settings import read_settings


def test_settings_without_anything_are_the_defaults(tmp_path):
    """An engine needs no arguments."""
    settings = read_settings([], {"FREETOKEN_HOME": str(tmp_path)})
    assert settings.home.root == tmp_path
    assert (settings.threads, settings.job, settings.drain_s) == (0, "", 120.0)


def test_settings_when_reuse_is_switched_off_then_it_is(tmp_path):
    """On without a word."""
    around = {"FREETOKEN_HOME": str(tmp_path)}
    assert read_settings([], around).reuse
    assert not read_settings(["--no-reuse"], around).reuse


def test_settings_from_arguments_win_over_the_environment(tmp_path):
    """A call is more specific than a shell."""
    around = {
        "FREETOKEN_HOME": "/elsewhere",
        "FREETOKEN_THREADS": "3",
        "FREETOKEN_DEVICE_BYTES": "1000",
        "FREETOKEN_LOG": "warning",
    }
    settings = read_settings(
        ["--home", str(tmp_path), "--job", "verify", "--spec", '{"model": "é"}'], around
    )
    assert settings.home.root == Path(tmp_path)
    assert settings.spec == {"model": "é"}
    assert (settings.threads, settings.device_bytes, settings.log_level) == (3, 1000, "warning")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--threads", "-1"], "--threads"),
        (["--device-bytes", "1GB"], "--device-bytes"),
        (["--drain-s", "nan"], "--drain-s"),
        (["--log-level", "loud"], "loud"),
        (["--spec", "{half"], "--spec"),
        (["--spec", "[]"], "--spec"),
        (["--no-such"], "--no-such"),
    ],
)
def test_settings_with_nonsense_name_the_value(arguments, word):
    """Never a traceback, never argparse's exit code."""
    with pytest.raises(InvalidRequest, match=word):
        read_settings(arguments, {})
