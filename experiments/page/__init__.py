"""From results to the page: summaries, findings, tables, plots."""
