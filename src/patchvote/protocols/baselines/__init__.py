"""Baselines of the comparison: pooled descriptors, multi-scale pooling, and the product as users run it."""
