"""Every setting of the service, with its default. Reads no file and no environment; `cli/files.py` does."""
