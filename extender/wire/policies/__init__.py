"""Scheduling policies and what belongs to them: decoded, validated as the API server would, and written."""
