"""Host ports of pods, and which of them conflict, as kube-scheduler's plugin NodePorts decides it.

https://kubernetes.io/docs/concepts/configuration/overview/#services
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 (compared, nothing listens there): it conflicts with every address; an IPv6 wildcard does not


class HostPort(NamedTuple):
    """A port of the node that a container takes for itself."""

    protocol: str
    ip: str
    port: int

    def __str__(self) -> str:
        """``8080/TCP``, with the address where it is a certain one."""
        shown = f"{self.port}/{self.protocol}"
        return shown if self.ip == ANY_ADDRESS else f"{self.ip}:{shown}"


HostPorts = tuple[HostPort, ...]


class UsedPorts:
    """The host ports that pods use on one node, each with the number of containers that have it."""

    __slots__ = ("_used",)

    def __init__(self) -> None:
        self._used: dict[tuple[str, int], dict[str, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._used)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UsedPorts) and self._used == other._used

    __hash__ = None  # type: ignore[assignment]  # changed in place, so no key of anything

    def count(self, ports: Iterable[HostPort], sign: int) -> None:
        """Adds the ports of a pod (``sign`` 1) or takes them away (-1). O(ports)."""
        for protocol, ip, port in ports:
            here = self._used.setdefault((protocol, port), {})
            if left := here.get(ip, 0) + sign:
                here[ip] = left
                continue
            del here[ip]
            if not here:
                del self._used[protocol, port]

    def conflict(self, ports: Iterable[HostPort]) -> HostPort | None:
        """The first of the ports that a pod here uses already, None where all are free. O(ports)."""
        for wanted in ports:
            here = self._used.get((wanted.protocol, wanted.port))
            if here and (wanted.ip == ANY_ADDRESS or wanted.ip in here or ANY_ADDRESS in here):
                return wanted
        return None

    def copy(self) -> UsedPorts:
        """The same, to be changed apart. O(ports in use)."""
        found = UsedPorts()
        found._used = {port: dict(addresses) for port, addresses in self._used.items()}
        return found
