"""Voters that remember descriptors: NBNN and LocalNBNN."""
