"""BAG: where to sample an image, the descriptors that are extracted there, and the store that keeps them."""
