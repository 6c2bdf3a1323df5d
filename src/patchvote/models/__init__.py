"""LABEL: models, how they are stored, fitted, measured, explained and exported."""
