"""Voters that learn prototypes: SNBNL and NBNL."""
