"""Checking a collection of labelled photos: copies, wrong labels, outliers, and what is missing."""
