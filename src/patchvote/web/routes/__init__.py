"""Routes of the API, by what they are about. Each checks its arguments, calls the rooms below, and replies."""
