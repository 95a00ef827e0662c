"""Tests of `engine.runner`."""
