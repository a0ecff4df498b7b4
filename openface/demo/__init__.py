"""`make demo`: a whole installation on this machine with two workers and sample Spaces, and the check that it works."""
