"""Readiness of several parts and of reasons that hold the service back."""

from __future__ import annotations

from dataclasses import dataclass, field

from extender.tasks.readiness import Readiness


@dataclass
class Part:
    """A part that is as the test says."""

    is_ready: bool
    is_stale: bool = False
    missing: dict[str, str] = field(default_factory=dict)

    def checks(self) -> dict[str, str]:
        return self.missing


def test_ready_when_every_part_is() -> None:
    assert Readiness().is_ready
    assert Readiness(Part(is_ready=True), Part(is_ready=True)).is_ready
    assert not Readiness(Part(is_ready=True), Part(is_ready=False)).is_ready


def test_a_blocker_keeps_the_service_from_being_ready() -> None:
    readiness = Readiness(Part(is_ready=True, missing={"pods": ""}))
    readiness.block("shutdown", "the service is stopping")
    assert not readiness.is_ready
    assert readiness.checks() == {"pods": "", "shutdown": "the service is stopping"}


@dataclass
class Turn:
    """A replica that is as the test says."""

    is_ready: bool = True
    is_leader: bool = True

    def checks(self) -> dict[str, str]:
        return {"leadership": "" if self.is_ready else "standby"}


FRESH, OLD, EMPTY = Part(is_ready=True), Part(is_ready=False, is_stale=True), Part(is_ready=False)


def test_stale_only_if_nothing_but_news_is_missing() -> None:
    assert Readiness(FRESH, OLD).is_stale
    assert not Readiness(FRESH).is_stale
    assert not Readiness(FRESH, OLD, EMPTY).is_stale
    assert not Readiness(OLD, replica=Turn(is_ready=False)).is_stale
    stopping = Readiness(OLD)
    stopping.block("shutdown", "the service is stopping")
    assert not stopping.is_stale


def test_a_replica_is_ready_when_it_is_its_turn() -> None:
    assert Readiness(FRESH, replica=Turn()).is_ready
    assert not Readiness(OLD, replica=Turn()).is_ready
    waiting = Readiness(FRESH, replica=Turn(is_ready=False))
    assert not waiting.is_ready
    assert waiting.checks() == {"leadership": "standby"}


def test_answers_go_out_while_stopping_but_not_when_it_is_anothers_turn() -> None:
    stopping = Readiness(FRESH, replica=Turn())
    stopping.block("shutdown", "the service is stopping")
    assert stopping.may_answer
    assert Readiness(EMPTY).may_answer
    assert not Readiness(FRESH, replica=Turn(is_leader=False)).may_answer
