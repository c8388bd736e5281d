"""Pictures of the page, and how fast it opens, in a real Chromium."""
