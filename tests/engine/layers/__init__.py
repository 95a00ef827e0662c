"""Tests of `engine.layers`."""
