"""Voters that keep descriptors: NBNN and LocalNBNN."""
