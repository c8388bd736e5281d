"""The version of Kubernetes that a command writes for, of its arguments. It is apart from `cluster_version`, which imports aiohttp."""

import re
from typing import Final

from extender.cli.main import CommandError
from extender.wire.api_server import NEWEST, OLDEST

_GIVEN: Final = re.compile(r"v?1\.(\d+)(?:\.\d+)?")


def minor_given(text: str) -> int | None:
    """The minor version of an argument; None for an empty one. Raises CommandError."""
    match = _GIVEN.fullmatch(text)
    if text and match is None:
        raise CommandError(f"--kubernetes: expected a version such as 1.{NEWEST}, got {text}")
    minor = int(match[1]) if match else None
    if minor is not None and minor < OLDEST:
        raise CommandError(f"--kubernetes: 1.{OLDEST} is the oldest supported version, got {text}")
    return minor
