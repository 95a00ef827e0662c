"""What all tests of the remote engine share."""

import pytest


@pytest.fixture(autouse=True)
def no_proxy_of_the_system(monkeypatch):
    """Whatever the machine that runs the tests says."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
