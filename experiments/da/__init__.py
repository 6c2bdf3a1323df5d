"""DA-NBNN: NBNN for photos of another domain, with learned metrics."""
