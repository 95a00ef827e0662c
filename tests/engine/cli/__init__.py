"""Tests of the terminal's verbs."""
