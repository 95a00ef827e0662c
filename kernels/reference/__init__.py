"""Plain torch, always available; the truth for every fast kernel."""
