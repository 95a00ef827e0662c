"""The person's side of FreeToken Desktop: a Qt window that talks to the engine over a pipe."""
