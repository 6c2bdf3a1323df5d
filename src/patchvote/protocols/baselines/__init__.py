"""What voters are compared with: pooled descriptors, multi-scale pooling, the product of its users."""
