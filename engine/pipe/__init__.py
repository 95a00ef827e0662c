"""The engine's side of the pipe."""
