"""VOTES: estimators that learn from bags, and the scorers with which their descriptors vote."""
