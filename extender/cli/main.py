"""The `extender` command: its parser and its exit codes. Each subcommand lives in its own module."""


def main() -> int:
    """Run the command line; the exit code is returned, never raised."""
    return 2
