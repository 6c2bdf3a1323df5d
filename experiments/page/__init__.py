"""From results to the page: comparisons, tables, plots."""
