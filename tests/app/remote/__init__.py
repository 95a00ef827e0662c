"""The remote engine."""
