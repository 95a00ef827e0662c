"""The machine's side of FreeToken Desktop: loads models, generates tokens, owns memory."""
