"""The workflows that nobody can run here: whole, and their small scripts tried."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY

FILES = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))


def workflow(name: str) -> dict[str, Any]:
    """A workflow as its runner reads it."""
    yaml = pytest.importorskip("yaml", reason="needs PyYAML")
    text = (REPOSITORY / ".github" / "workflows" / name).read_text("utf-8")
    read: dict[str, Any] = yaml.safe_load(text)
    return read


def script(job: str, name: str) -> str:
    """The script of a step of the release."""
    steps = workflow("release.yml")["jobs"][job]["steps"]
    return str(next(step["run"] for step in steps if step.get("name") == name))


@pytest.mark.skipif(shutil.which("actionlint") is None, reason="actionlint is not on PATH")
def test_workflows_when_linted_then_nothing_is_said() -> None:
    """Names of inputs, expressions, runners."""
    words = ["actionlint", *map(str, FILES)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("name", [path.name for path in FILES])
def test_workflow_when_read_then_every_job_is_whole(name: str) -> None:
    """Every job has an end, every step does something, what is needed exists."""
    jobs = workflow(name)["jobs"]
    for job in jobs.values():
        assert job["timeout-minutes"]
        wanted = job.get("needs", [])
        assert set([wanted] if isinstance(wanted, str) else wanted) <= set(jobs)
        assert all(("run" in step) != ("uses" in step) for step in job["steps"])


def test_files_that_the_workflows_name_then_they_exist() -> None:
    """A renamed file shows on the day of a release, or here."""
    text = "".join(path.read_text("utf-8") for path in FILES)
    for name in ("tests/installers/test_frozen.py", "installers/common/smoke.py"):
        assert name in text
        assert (REPOSITORY / name).is_file()
    for name in ("lock", "bundle", "update_manifest"):
        assert f"installers.common.{name} " in text
        assert (REPOSITORY / "installers" / "common" / f"{name}.py").is_file()
    assert "installers.linux.clean_root " in text


@pytest.mark.linux
@pytest.mark.skipif(os.name != "posix", reason="a script for bash")
@pytest.mark.parametrize(
    ("kind", "ref", "code"),
    [
        ("tag", "v1.2.0", 0),
        ("tag", "v1.2.1", 1),
        ("tag", "1.2.0", 1),
        ("branch", "main", 0),
    ],
)
def test_tag_when_it_names_another_version_then_nothing_is_built(
    tmp_path: Path, kind: str, ref: str, code: int
) -> None:
    """The release would be called what it is not, and its packages would not update."""
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.0"\n')
    done = subprocess.run(
        ["bash", "-ec", script("version", "Tag and version agree")], cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "GITHUB_REF_TYPE": kind, "GITHUB_REF_NAME": ref},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code
    assert ("must be v1.2.0" in done.stdout) == bool(code)
    jobs = workflow("release.yml")["jobs"]
    assert all(jobs[job]["needs"] == "version" for job in ("linux", "windows"))


@pytest.mark.linux
@pytest.mark.skipif(os.name != "posix", reason="a script for bash")
@pytest.mark.parametrize(("tag", "key", "made"), [("v1.2.0", "ab", True), ("v1.2.0", "", False),
                                                  ("v1.2.0rc1", "ab", False)])  # fmt: skip
def test_list_of_releases_when_there_is_a_key_then_it_is_signed(
    tmp_path: Path, tag: str, key: str, made: bool
) -> None:
    """Of a release only; without a key it is said, and the release goes on."""
    (tmp_path / "files").mkdir()
    fake = tmp_path / "python"
    fake.write_text('#!/bin/sh\n[ "$2" = pip ] || { cat "$4"; echo "$@"; }\n')
    fake.chmod(0o755)
    done = subprocess.run(
        ["bash", "-ec", script("publish", "Signed list of releases, for whoever asks whether there"
                               " is a newer one")],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "RUNNER_TEMP": str(tmp_path),
             "SIGNING_KEY": key, "TAG": tag, "FT_UPDATE_KEY": "public",
             "GITHUB_SERVER_URL": "https://host", "GITHUB_REPOSITORY": "owner/name"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    file = tmp_path / "files" / "release.json"
    assert file.exists() == made
    assert ("::notice::" in done.stdout) != made
    assert not (tmp_path / "update.key").exists()
    if made:
        text = file.read_text()
        assert text.startswith("ab\n")
        page = "https://host/owner/name/releases/tag/v1.2.0"
        assert f"update.key 1.2.0 {page} --public public" in text
