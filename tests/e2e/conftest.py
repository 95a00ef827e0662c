"""The converted built-in model for end-to-end tests, and the figures that they found."""

import pytest

from engine.protocol.places import DataRoot
from tests.support.converted import convert_once


@pytest.fixture(scope="session")
def converted_home(tmp_path_factory: pytest.TempPathFactory) -> DataRoot:
    """A data root that holds the built-in model, converted."""
    return convert_once(tmp_path_factory)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests recorded: times are told, never asserted."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}: {name} = {value}")
