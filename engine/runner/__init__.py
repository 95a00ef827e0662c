"""One forward and one sampled token per row."""
