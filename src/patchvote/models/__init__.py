"""LABEL: the model as a value and a file; how it is fitted, measured, explained and exported."""
