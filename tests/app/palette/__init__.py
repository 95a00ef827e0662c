"""Tests of the palette: matching, entries, keys."""
