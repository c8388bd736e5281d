"""Host ports of pods, and which of them conflict, as kube-scheduler's plugin NodePorts decides it.

https://kubernetes.io/docs/concepts/configuration/overview/#services
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Final, NamedTuple

# Conflicts with every address. The IPv6 wildcard does not, because NodePorts compares it as text.
ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 (compared, nothing listens there)


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
    """Host ports of the pods on a node, or of a pod: by protocol and number, the addresses on which containers have it.

    About 150 bytes a port.
    """

    __slots__ = ("_below", "_used")

    def __init__(self, ports: Iterable[HostPort] = ()) -> None:
        self._used: dict[tuple[str, int], tuple[str, ...]] = {}
        # The table of the node, under a trial's own table: `_used` then holds only ports that the trial changed. An
        # empty tuple there hides an entry below.
        self._below: Mapping[tuple[str, int], tuple[str, ...]] = {}
        self.count(ports, 1)

    def __bool__(self) -> bool:
        return bool(self._used or self._below)

    def beside(self) -> UsedPorts:
        """A copy for a trial within one step: it stores only what differs from this one. O(1)."""
        ports = UsedPorts()
        ports._below = self._used
        return ports

    def count(self, ports: Iterable[HostPort], sign: int) -> None:
        """Adds the ports of a pod (``sign`` 1) or takes them away (-1). O(ports)."""
        used, below = self._used, self._below
        for protocol, ip, port in ports:
            key = protocol, port
            here = self._addresses(key)
            if sign > 0:
                addresses = _ON_EVERY_ADDRESS if not here and ip == ANY_ADDRESS else (*here, ip)
            elif below and ip not in here:
                continue  # the table below has changed since the pod was added here
            else:
                at = here.index(ip)
                addresses = here[:at] + here[at + 1 :]
            # An empty entry hides the entry below; without one it is not needed.
            if addresses or key in below:
                used[key] = addresses
            else:
                del used[key]

    def conflict(self, wanted: UsedPorts) -> HostPort | None:
        """The lowest of the wanted ports that is in use; None where all are free. O(the smaller of both tables)."""
        asked = wanted._used
        taken = self._used.keys() & asked.keys()
        if self._below:
            taken |= self._below.keys() & asked.keys()  # a union of both tables would visit every port of the node
        conflicts = [
            HostPort(key[0], ip, key[1]) for key in taken for ip in asked[key] if _meets(ip, self._addresses(key))
        ]
        return min(conflicts, key=_by_number, default=None)

    def _addresses(self, key: tuple[str, int]) -> tuple[str, ...]:
        addresses = self._used.get(key)
        return self._below.get(key, ()) if addresses is None else addresses


_ON_EVERY_ADDRESS: Final = (ANY_ADDRESS,)
_by_number = attrgetter("port", "protocol", "ip")


def _meets(ip: str, addresses: tuple[str, ...]) -> bool:
    """Whether a port on an address conflicts with the same port on these."""
    return bool(addresses) and (ip == ANY_ADDRESS or ip in addresses or ANY_ADDRESS in addresses)
