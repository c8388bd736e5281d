"""The version of the installed distribution, for metrics, `/version` and the command line."""

from importlib.metadata import version

DISTRIBUTION = "placement-extender"


def installed_version() -> str:
    """The version of the installed distribution."""
    return version(DISTRIBUTION)
