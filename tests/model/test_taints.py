"""Which toleration covers which taint."""

from __future__ import annotations

import pytest

from extender.model.constraints.taints import Taint, Toleration, first_untolerated

GPU = Taint("gpu", "yes", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "covers"),
    [
        pytest.param(Toleration("gpu", "Equal", "yes", "NoSchedule"), True, id="the same"),
        pytest.param(Toleration("gpu", "", "yes", "NoSchedule"), True, id="no operator is Equal"),
        pytest.param(Toleration("gpu", "Equal", "yes", ""), True, id="any effect"),
        pytest.param(Toleration("gpu", "Exists", "", "NoSchedule"), True, id="any value"),
        pytest.param(Toleration("", "Exists"), True, id="everything"),
        pytest.param(Toleration("", "Exists", "", "NoExecute"), False, id="everything of another effect"),
        pytest.param(Toleration("gpu", "Equal", "no", "NoSchedule"), False, id="another value"),
        pytest.param(Toleration("gpu", "Equal", "", "NoSchedule"), False, id="no value"),
        pytest.param(Toleration("tpu", "Equal", "yes", "NoSchedule"), False, id="another key"),
        pytest.param(Toleration("gpu", "Equal", "yes", "NoExecute"), False, id="another effect"),
        pytest.param(Toleration("", "Equal", "yes"), True, id="no key, equal value"),
        pytest.param(Toleration("gpu", "Gt", "1", "NoSchedule"), False, id="a numeric operator"),
        pytest.param(Toleration("gpu", "Lt", "yes", "NoSchedule"), False, id="the other numeric operator"),
    ],
)
def test_a_toleration_covers_a_taint_by_effect_key_and_value(toleration: Toleration, *, covers: bool) -> None:
    assert toleration.tolerates(GPU) is covers


def test_a_taint_without_a_value_is_tolerated_by_no_value() -> None:
    assert Toleration("busy", "Equal").tolerates(Taint("busy", "", "NoSchedule"))


@pytest.mark.parametrize(("effect", "repels"), [("NoSchedule", True), ("NoExecute", True), ("PreferNoSchedule", False)])
def test_prefer_no_schedule_does_not_keep_a_pod_away(effect: str, *, repels: bool) -> None:
    taint = Taint("busy", "", effect)
    assert taint.repels is repels
    assert first_untolerated([taint], []) == (taint if repels else None)


def test_every_taint_needs_a_toleration_and_the_first_without_one_is_named() -> None:
    other = Taint("busy", "", "NoExecute")
    assert first_untolerated([GPU, other], [Toleration("gpu", "Exists")]) == other
    assert first_untolerated([GPU, other], [Toleration("gpu", "Exists"), Toleration("busy", "Exists")]) is None
    assert first_untolerated([], []) is None
