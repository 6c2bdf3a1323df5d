"""Reports about a model: its card, pictures of evidence, and the page."""
