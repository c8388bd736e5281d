"""Each case that the older options of a release can express is expressed by `noRoom` and `laterPods`, and read as the same."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import yaml

from extender.model.release import LaterPods, NoRoom, ReleaseSpec
from extender.wire.policies.policies_v1 import read_policy
from extender.wire.policies.release_options import (
    Growth,
    OnTimeout,
    ReleaseMode,
    Replacement,
    WhenNoRoom,
    deprecation,
)
from tests.builders import Json
from tests.policies import policy_json

TIMEOUTS = ("", "10m", "90s")
CASES = list(product(("", *ReleaseMode), ("", *WhenNoRoom), ("", *OnTimeout), TIMEOUTS, Replacement, Growth))
GROWING = {"domains": [{"name": "a", "values": ["a"], "mayGrow": True}]}
LATER = {
    ("SameDomain", "SameDomain"): "Join",
    ("Redecide", "SameDomain"): "JoinOrMove",
    ("SameDomain", "KeepGated"): "Replace",
    ("Redecide", "KeepGated"): "ReplaceOrMove",
}


def is_valid(mode: str, when_no_room: str, on_timeout: str) -> bool:
    """A domain that may grow limits where groups go."""
    return when_no_room != "Release" or (mode != "Preferred" and on_timeout in ("", "KeepGated"))


def written(**fields: Any) -> Json:
    return {"topology": ["zone"]} | {name: value for name, value in fields.items() if value not in ("", [])}


def spec_of(release: Json) -> ReleaseSpec:
    found = read_policy(policy_json(when=["Release"], release=release)).release
    assert found is not None
    return found


def test_each_combination_of_the_older_options_is_said_by_the_newer_ones() -> None:
    tried = 0
    for mode, when_no_room, on_timeout, timeout, replacement, growth in CASES:
        if not is_valid(mode, when_no_room, on_timeout):
            continue
        domains = GROWING if when_no_room == "Release" else {}
        older = written(
            mode=mode,
            whenNoRoom=when_no_room,
            onTimeout=on_timeout,
            decisionTimeout=timeout,
            replacement=replacement,
            growth=growth,
        )
        actions: list[Json] = []
        actions += [{"action": "GrowingDomain"}] if when_no_room == "Release" else []
        actions += [{"action": "Preempt"}] if when_no_room == "Preempt" else []
        actions += [{"action": "SeveralDomains"}] if mode == "Preferred" else []
        last = {"Ungate": "Anywhere", "UngateAtCoarserLevel": "CoarserDomain"}.get(on_timeout, "Wait")
        after = {"after": timeout} if timeout else {}
        actions += [{"action": last} | after] if last != "Wait" or timeout == "90s" else []
        newer = written(noRoom=actions, laterPods=LATER[replacement, growth])
        spec = spec_of(older | domains)
        assert spec == spec_of(newer | domains), older
        assert spec.does(NoRoom.PREEMPT) == (when_no_room == "Preempt")
        assert spec.does(NoRoom.GROWING_DOMAIN) == (when_no_room == "Release")
        assert spec.does(NoRoom.SEVERAL_DOMAINS) == (mode == "Preferred")
        assert (spec.last, spec.last_after) == (NoRoom(last), 90.0 if timeout == "90s" else 600.0)
        assert (spec.joins, spec.moves) == (growth == "SameDomain", replacement == "Redecide")
        tried += 1
    assert tried > 200


def test_the_warning_about_older_options_writes_what_says_the_same() -> None:
    for mode, when_no_room, on_timeout, timeout, replacement, growth in CASES:
        fields = {"mode": mode, "whenNoRoom": when_no_room, "onTimeout": on_timeout, "decisionTimeout": timeout}
        older = written(**fields, replacement=replacement, growth=growth)
        if not is_valid(mode, when_no_room, on_timeout):
            continue
        domains = GROWING if when_no_room == "Release" else {}
        text = deprecation(older)
        if not text:
            assert spec_of(older | domains) == spec_of(written() | domains)
            continue
        _, _, fields_instead = text.partition("deprecated, write ")
        newer = yaml.safe_load("\n".join(fields_instead.split(" and ")))
        assert spec_of(older | domains) == spec_of(written(**newer) | domains), text
        assert deprecation(written(**newer)) == ""


def test_an_older_option_that_says_its_default_in_another_form_is_to_be_left_out() -> None:
    assert deprecation(written(decisionTimeout="600s")) == "decisionTimeout: deprecated, leave it out"


@pytest.mark.parametrize("field", ["mode", "whenNoRoom", "onTimeout", "decisionTimeout"])
def test_a_default_that_an_older_schema_has_written_is_no_contradiction(field: str) -> None:
    defaults = {"mode": "Required", "whenNoRoom": "Wait", "onTimeout": "KeepGated", "decisionTimeout": "10m"}
    release = written(noRoom=[{"action": "Preempt"}, {"action": "Anywhere"}], laterPods="Replace")
    found = spec_of(release | {field: defaults[field], "replacement": "SameDomain"})
    assert found == spec_of(release)
    assert found.later_pods is LaterPods.REPLACE


def test_an_action_that_comes_later_is_left_out_until_its_time() -> None:
    release = written(
        noRoom=[{"action": "Preempt"}, {"action": "SeveralDomains", "after": "5m"}, {"action": "Anywhere"}]
    )
    spec = spec_of(release)
    assert [step.action for step in spec.at(299.0).no_room] == ["Preempt", "Anywhere"]
    assert spec.at(300.0) is spec
    assert spec.times == (0.0, 300.0, 600.0, 600.0)
