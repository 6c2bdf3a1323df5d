"""The paper's experiments: run with `python -m experiments` from the repository (see README.md)."""
