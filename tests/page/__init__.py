"""The page in a real Chromium, in front of the real service."""
