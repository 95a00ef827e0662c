"""Verbs for the terminal."""
