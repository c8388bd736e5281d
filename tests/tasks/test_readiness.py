"""Readiness of several parts and of reasons that hold the service back."""

from __future__ import annotations

from dataclasses import dataclass, field

from extender.tasks.readiness import Readiness


@dataclass
class Part:
    """A part that is as the test says."""

    is_ready: bool
    missing: dict[str, str] = field(default_factory=dict)

    def checks(self) -> dict[str, str]:
        return self.missing


def test_ready_when_every_part_is() -> None:
    assert Readiness().is_ready
    assert Readiness(Part(is_ready=True), Part(is_ready=True)).is_ready
    assert not Readiness(Part(is_ready=True), Part(is_ready=False)).is_ready


def test_a_hold_counts_until_it_is_released() -> None:
    readiness = Readiness(Part(is_ready=True, missing={"pods": ""}))
    readiness.hold("shutdown", "the service is stopping")
    assert not readiness.is_ready
    assert readiness.checks() == {"pods": "", "shutdown": "the service is stopping"}
    readiness.release("shutdown")
    assert readiness.is_ready
