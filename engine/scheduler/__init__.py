"""Requests to batches, step by step; resizes at safe points."""
