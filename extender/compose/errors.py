"""What can go wrong when a service is started; apart, so that the command line can name it without importing a service."""


class StartError(Exception):
    """Raised when the service cannot be started here: its address is taken, or it does not get ready."""
