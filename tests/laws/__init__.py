"""Property tests: what holds after any sequence of changes."""
