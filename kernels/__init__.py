"""Tensors in, tensors out: every operation of the engine, with a plain torch reference."""

# transformers probes for a hub package of this name; this version keeps that probe quiet.
__version__ = "0.0"
