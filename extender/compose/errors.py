"""Errors at the start of a service; a module of its own, so that `cli.main` need not import the service."""


class StartError(Exception):
    """Raised when the service cannot be started here: its address is taken, or it does not get ready."""
