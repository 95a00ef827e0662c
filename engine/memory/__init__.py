"""Numbers in, numbers out: budgets, pressure, measured bandwidths. No torch, no device."""
