"""What one file of tests leaves behind must not reach the next one."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

LEAVES = """
def test_leaves_another_language(qapp):
    from app.widgets.look import use
    use("light", 1.4, "zh_CN")
"""
FINDS = """
def test_finds_the_usual(qapp):
    from app.theme import theme
    from app.wording import language
    assert (language(), theme().language, theme().zoom, theme().tone) == ("en", "en", 1.0, "dark")
"""


def test_language_left_by_a_file_then_the_next_one_starts_in_english(tmp_path: Path) -> None:
    """Files meet in any order on a machine with several workers."""
    (tmp_path / "conftest.py").write_text("from tests.app.conftest import spoken\n")
    for name, text in (("test_a.py", LEAVES), ("test_b.py", FINDS)):
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-c", "pytest.ini", "-p", "no:cacheprovider"]
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    run = subprocess.run(
        [*command, str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    assert "2 passed" in run.stdout
