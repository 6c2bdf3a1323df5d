"""Photos: find the files that a user means, and decode them safely."""
