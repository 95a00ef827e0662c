"""Tests of `engine.quant`."""
