"""Tests of `engine.cache`."""
