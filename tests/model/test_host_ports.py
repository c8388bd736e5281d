"""Which host ports conflict, and that counting them leaves nothing behind."""

from __future__ import annotations

import pytest

from extender.model.host_ports import ANY_ADDRESS, HostPort, UsedPorts


def port(number: int = 80, ip: str = ANY_ADDRESS, protocol: str = "TCP") -> HostPort:
    return HostPort(protocol, ip, number)


@pytest.mark.parametrize(
    ("used", "wanted", "conflicts"),
    [
        pytest.param(port(), port(), True, id="the same port on every address"),
        pytest.param(port(), port(81), False, id="another port"),
        pytest.param(port(), port(protocol="UDP"), False, id="another protocol"),
        pytest.param(port(ip="10.0.0.1"), port(), True, id="every address is wanted, one is in use"),
        pytest.param(port(), port(ip="10.0.0.1"), True, id="one is wanted, every address is in use"),
        pytest.param(port(ip="10.0.0.1"), port(ip="10.0.0.2"), False, id="two addresses"),
        pytest.param(port(ip="::"), port(ip="fd00::1"), False, id="the IPv6 wildcard is an address like any other"),
    ],
)
def test_ports_conflict_as_in_node_ports(used: HostPort, wanted: HostPort, *, conflicts: bool) -> None:
    ports = UsedPorts()
    ports.count([used], 1)
    assert (ports.conflict(UsedPorts([wanted])) is not None) is conflicts


def test_a_port_stays_in_use_until_its_last_user_has_left() -> None:
    ports = UsedPorts()
    ports.count([port()], 1)
    ports.count([port(), port(81)], 1)
    ports.count([port()], -1)
    assert ports.conflict(UsedPorts([port()])) == port()
    ports.count([port(), port(81)], -1)
    assert not ports


def test_changes_beside_others_leave_these() -> None:
    ports = UsedPorts()
    ports.count([port()], 1)
    beside = ports.beside()
    beside.count([port()], -1)
    beside.count([port(81)], 1)
    assert beside.conflict(UsedPorts([port()])) is None
    assert beside.conflict(UsedPorts([port(81), port()])) == port(81)
    assert ports.conflict(UsedPorts([port()])) == port()
