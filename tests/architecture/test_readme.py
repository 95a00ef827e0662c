"""The README's commands are the ones that work, and CI runs them."""

import re

from tests.conftest import REPOSITORY

TEST_COMMAND = "python3 dev.py test"


def test_readme_commands_are_verbs_of_the_door() -> None:
    """Every `dev.py VERB` that documents name exists."""
    import dev

    for document in ("README.md", "ARCHITECTURE.md"):
        text = (REPOSITORY / document).read_text(encoding="utf-8")
        verbs = set(re.findall(r"dev\.py ([a-z]+)", text))
        assert verbs, document
        assert verbs <= set(dev.VERBS), document


def test_ci_ends_with_the_readme_test_command() -> None:
    """What a newcomer is told to run is what guards the main branch."""
    assert TEST_COMMAND in (REPOSITORY / "README.md").read_text(encoding="utf-8")
    lines = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8").strip().splitlines()
    assert lines[-1] == TEST_COMMAND


def test_readme_names_every_top_level_entry() -> None:
    """The tree in the README is the tree."""
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    folders = ("app/", "engine/", "kernels/", "resources/", "installers/", "tests/")
    for entry in (*folders, "build.spec"):
        assert entry in text
        assert (REPOSITORY / entry).exists()
