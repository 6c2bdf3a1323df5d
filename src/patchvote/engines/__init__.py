"""Where work runs: in this process (`local`), or on the workers of a cluster (`ray`, an extra)."""
