"""PHOTO: which photos a user means, and their pixels, read safely."""
