"""Proof by search: the product's own code, stepped through its interleavings and faults."""
