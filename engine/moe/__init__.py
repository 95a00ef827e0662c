"""Expert residency: pool, slots, cache, plan, execution, streaming."""
