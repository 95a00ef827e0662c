"""The fake engine for the tests of services; see tests/support/app_engine.py."""

from tests.support.app_engine import loaded_client, make_client, make_process

__all__ = ["loaded_client", "make_client", "make_process"]
