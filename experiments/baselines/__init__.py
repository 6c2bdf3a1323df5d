"""What the voters are compared with."""
