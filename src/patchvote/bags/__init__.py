"""BAG: where to look, the descriptors that are found there, and the store that keeps them."""
