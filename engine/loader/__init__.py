"""Checkpoint, family, format, budget, pools and runner become a loaded engine."""
