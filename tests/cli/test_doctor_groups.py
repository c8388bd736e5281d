"""`extender doctor` on a running service whose cluster has pods at a gate: what is held for too long is found."""

from __future__ import annotations

from pathlib import Path

from tests.cli.test_doctor import installed_policies, set_up, with_policies
from tests.cli.test_groups import POLICY, member


async def test_a_group_that_is_held_longer_than_its_policy_allows_is_found(tmp_path: Path) -> None:
    objects = [*installed_policies(), POLICY, member("a-0", minutes=20), member("b-0", "b", minutes=2)]
    async with set_up(tmp_path, pods=objects, policies=with_policies()) as setup:
        _, document = await setup.doctor()
    (found,) = [one for one in document["findings"] if one["check"] == "gates"]
    assert found["problem"] == (
        "group shop/a (ClusterPodSchedulingPolicy/rings): 1 pod is held at its gate for 20 minutes, "
        "release.decisionTimeout is 10 minutes: 1 of 3 pods exists"
    )
    assert "release.size" in found["remedy"]


async def test_pods_that_no_policy_releases_are_found(tmp_path: Path) -> None:
    lost = member("lost", minutes=20)
    lost["spec"]["schedulingGates"] = [{"name": "placement.extender.dev/of-a-deleted-policy"}]
    async with set_up(tmp_path, pods=[*installed_policies(), POLICY, lost], policies=with_policies()) as setup:
        _, document = await setup.doctor()
    (found,) = [one for one in document["findings"] if one["check"] == "gates"]
    assert found["problem"].endswith("such as shop/lost (placement.extender.dev/of-a-deleted-policy)")
