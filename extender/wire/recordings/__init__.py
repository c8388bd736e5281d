"""Recordings for `extender replay`: their format, the answers in them, and the names that redaction replaces."""
