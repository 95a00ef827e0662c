"""Tests of `engine.models`."""
