"""The page and its HTTP API (the extra `web`): teach a model and ask it in the browser, or from another program."""
