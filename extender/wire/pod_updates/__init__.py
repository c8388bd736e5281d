"""Which updates of a pod the API server accepts. Plain JSON in, field errors out; begin with `rules.py`."""
