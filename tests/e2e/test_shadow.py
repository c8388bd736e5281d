"""Shadow decisions beside a real kube-scheduler whose own plugins place the pods, and with a fault put into a rule."""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
from functools import partial
from pathlib import Path

import pytest

from extender.simulator.json_objects import JsonObject, name_of
from tests.e2e import mixture
from tests.e2e.cluster import Cluster
from tests.e2e.programs import free_ports
from tests.e2e.shadow_service import SHADOW, doctor, faulty, has_compared, placed_one_at_a_time, service, settled
from tests.e2e.test_quick_start import command_in
from tests.quick_start import KUBEADM, blocks, follow, shell
from tests.simulator.plain import HOSTNAME, ZONE, affinity, anti_affinity, namespace, node, pod, spread, term

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

RULES = "extender_shadow_rule_decisions_total"
PAGE = "config/how-to/prove-the-switch.md"
WEB = {"app": "web"}
TEAM_A = {"matchLabels": {"team": "a"}}
SKEW_IS_ONE_LESS = """
from extender.rules import topology_spread
right = topology_spread.most_matching
topology_spread.most_matching = lambda constraint, self_match, least: right(constraint, self_match, least) - 1
"""
ANTI_AFFINITY_PASSES = """
from extender.rules import interpod_affinity
interpod_affinity.Apart.passing = lambda self, nodes: nodes
"""


async def test_a_mixture_that_the_plugins_place_differs_nowhere(cluster: Cluster) -> None:
    """In a burst and one at a time, on a sample of 100 of the 250 nodes."""
    await mixture.prepare(cluster)
    pods = list(mixture.pods(340))
    async with cluster.scheduled("augment", settings=SHADOW, percentageOfNodesToScore=10) as extender:
        await cluster.api.create(*pods[:300])
        await cluster.board.bound(*pods[:300])
        await placed_one_at_a_time(cluster, *pods[300:])
        found = await settled(extender.url, lambda page: page["decisions"]["agreed"] >= 40)
        (finding,) = doctor(cluster, extender)
    assert found["differ"] == 0, json.dumps(found["differences"])
    assert found["compared"] >= 100
    assert all(each["agreed"] >= 15 for each in found["rules"] if each["rule"] != "Limits")
    assert (finding["severity"], finding["problem"].partition(" (")[0]) == (
        "info",
        f"{found['compared']} decisions compared, 0 differ",
    )
    assert "wait until" in finding["remedy"]


async def test_what_conditions_count_is_what_our_rules_count(cluster: Cluster) -> None:
    """Pods that no node takes: for several reasons at a time, and for each reason of the two plugins."""
    await cluster.add_nodes(zones=2, per_zone=3)
    tainted = [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]
    await cluster.api.create(
        node("tainted", "z1", taints=tainted),
        node("small", "z2", cpu="50m"),
        node("large", "z1", cpu="64"),
        namespace("a1", team="a"),
        service("even", app="even"),
    )
    everywhere = [{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}]
    defaults = {"defaultingType": "List", "defaultConstraints": everywhere}
    args = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "PodTopologySpreadArgs", **defaults}
    profile = {"schedulerName": "default-scheduler", "pluginConfig": [{"name": "PodTopologySpread", "args": args}]}
    settings = {**SHADOW, "rules": {"topologySpread": defaults}}
    second = {**WEB, "revision": "2"}
    by_revision = spread(ZONE, labels=WEB, matchLabelKeys=["revision"], minDomains=4)
    waiting = [
        pod("no-such-pod", affinity=affinity(term(ZONE, namespaces=TEAM_A, app="absent"))),
        pod("avoids-web", affinity=anti_affinity(term(ZONE, app="web"))),
        pod("is-avoided", labels={"loud": "yes"}),
        pod("no-such-key", labels=WEB, topologySpreadConstraints=[spread("example.com/rack", labels=WEB)]),
        pod("too-few-zones", labels=WEB, topologySpreadConstraints=[spread(ZONE, labels=WEB, minDomains=5)]),
        pod("by-revision", labels=second, topologySpreadConstraints=[by_revision]),
        pod("by-default", labels={"app": "even"}, cpu="8"),
        pod("too-large", labels=WEB, affinity=anti_affinity(term(HOSTNAME, app="web")), cpu="100"),
    ]
    apart = anti_affinity(term(ZONE, loud="yes"), term(HOSTNAME, app="web"))
    placed = [
        *(pod(f"quiet-{zone}", on=f"z{zone}-1", labels=WEB, affinity=apart) for zone in (1, 2)),
        *(pod(f"second-{zone}", on=f"z{zone}-2", labels=second) for zone in (1, 2)),
        pod("even-1", on="z1-3", labels={"app": "even"}),
    ]
    await cluster.api.create(*placed)
    async with cluster.scheduled("augment", settings=settings, profiles=[profile]) as extender:
        await cluster.api.create(*waiting)
        messages = {name_of(each): await cluster.board.rejected(each) for each in waiting}
        found = await settled(extender.url, lambda page: page["compared"] >= len(waiting))
    assert found["differ"] == 0, json.dumps([found["differences"], messages])
    for name, reason in {
        "no-such-pod": "didn't match pod affinity rules",
        "avoids-web": "didn't match pod anti-affinity rules",
        "is-avoided": "didn't satisfy existing pods anti-affinity rules",
        "no-such-key": "(missing required label)",
        "too-few-zones": "7 node(s) didn't match pod topology spread constraints.",
        "by-revision": "7 node(s) didn't match pod topology spread constraints.",
        "by-default": "1 node(s) didn't match pod topology spread constraints,",
        "too-large": "Insufficient cpu",
    }.items():
        assert reason in messages[name]


async def test_a_fault_in_topology_spread_shows_in_the_page_the_metrics_and_doctor(cluster: Cluster) -> None:
    await cluster.add_nodes(zones=3, per_zone=2)
    constraint = spread(labels=WEB)
    async with faulty(cluster, SKEW_IS_ONE_LESS) as extender:
        found: JsonObject = {"differ": 0}
        for number in itertools.count():  # the nodes have just come, which explains the first differences
            if found["differ"] >= 3:
                break
            await placed_one_at_a_time(
                cluster, pod(f"web-{number}", labels=WEB, topologySpreadConstraints=[constraint])
            )
            found = await settled(extender.url, partial(has_compared, number + 1))
        differing = {
            result: await extender.metric(RULES, rule="PodTopologySpread", result=result)
            for result in ("agreed", "differed", "unproven")
        }
        (finding,) = doctor(cluster, extender)
    assert differing == {"agreed": 0, "differed": found["differ"], "unproven": 0}
    last = found["differences"][0]
    assert (last["pod"], last["confirmed"], last["rule"]) == (f"web-{number - 1}", True, "PodTopologySpread")
    assert last["node"] == last["boundTo"] == cluster.board.node(f"default/web-{number - 1}")
    assert last.get("count", 0) == last["limit"] + 1
    assert (finding["severity"], finding["problem"]) == (
        "warning",
        f"{found['compared']} decisions compared, {found['differ']} differ",
    )
    assert "do not switch" in finding["remedy"]


async def test_a_fault_that_lets_pods_pass_shows_by_the_conditions_of_pods_that_no_node_takes(cluster: Cluster) -> None:
    await cluster.add_nodes(zones=1, per_zone=2)
    pods = [pod(f"web-{number}", labels=WEB, affinity=anti_affinity(term(HOSTNAME, app="web"))) for number in range(3)]
    async with faulty(cluster, ANTI_AFFINITY_PASSES) as extender:
        await placed_one_at_a_time(cluster, *pods[:2])
        await cluster.api.create(pods[2])
        await cluster.board.rejected(pods[2])
        found = await settled(extender.url, lambda page: page["differ"])
        (finding,) = doctor(cluster, extender)
    (difference,) = found["differences"]
    assert (difference["pod"], difference["source"], difference["reason"]) == ("web-2", "condition", "anti_affinity")
    assert (difference["nodes"], difference["least"], difference["most"]) == (2, 0, 0)
    assert finding["severity"] == "warning"


async def test_preemption_and_nominated_pods_differ_nowhere(cluster: Cluster) -> None:
    """The scheduler preempts for its own plugins, and pods of equal priority meet the nominated pod."""
    await cluster.add_nodes(zones=2, per_zone=2)
    apart = anti_affinity(term(HOSTNAME, app="web"))
    low = [pod(f"low-{number}", labels=WEB, affinity=apart) for number in range(4)]
    high = [
        pod(
            f"high-{number}",
            labels=WEB,
            affinity=apart,
            priorityClassName="system-cluster-critical",
            priority=2000000000,
        )
        for number in range(6)
    ]
    async with cluster.scheduled("augment", settings=SHADOW) as extender:
        await placed_one_at_a_time(cluster, *low)
        cluster.board.ends_after = lambda: 1.5
        await cluster.api.create(*(each | {"metadata": each["metadata"] | {"namespace": "default"}} for each in high))
        await cluster.board.until(
            lambda: sum(bool(cluster.board.node(f"default/{name_of(each)}")) for each in high) == 4
        )
        found = await settled(extender.url, lambda page: page["compared"] >= 8, within=90)
    assert found["differ"] == 0, json.dumps(found["differences"])


async def test_the_how_to_page_leads_from_the_plugins_to_offload(
    cluster: Cluster, assets: Path, tmp_path: Path
) -> None:
    """Its commands are typed as they stand; only the port and the scheduler's kubeconfig are those of this machine."""
    await cluster.add_nodes(zones=3, per_zone=2)
    (port,) = free_ports(1)
    kubeconfig = str(cluster.plane.kubeconfig)
    typed = [each.replace(":8888", f":{port}").replace(KUBEADM, kubeconfig) for each in blocks(PAGE, "prove")]
    own_port = f"shadow: true\nserver: {{bindAddress: 127.0.0.1:{port}}}\n"
    begin, schedule, look, switch, check = [each.replace("shadow: true\n", own_port) for each in typed]
    environment = {
        "KUBECONFIG": str(cluster.plane.extender_kubeconfig),
        "PATH": f"{command_in(tmp_path / 'bin', assets)}:{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    apart = anti_affinity(term(HOSTNAME, app="web"))
    pods = [pod(f"web-{number}", labels=WEB, affinity=apart) for number in range(6)]
    async with shell(tmp_path, environment) as process:
        assert "shadow.yaml: valid (ExtenderConfiguration, mode augment)\n" in await follow(process, begin)
        await follow(process, schedule)
        await placed_one_at_a_time(cluster, *pods[:4])
        await settled(f"http://127.0.0.1:{port}", lambda page: page["compared"] >= 4)
        looked = await follow(process, look)
        await follow(process, switch)
        await placed_one_at_a_time(cluster, *pods[4:])
        checked = await follow(process, check)
    said = r"info: shadow: 4 decisions compared, 0 differ \(InterPodAffinity \d, PodTopologySpread 0 agreed\)\n"
    assert re.search(said, looked)  # on a busy machine one may be judged after the next pod is bound
    assert "    wait until 100 of each agreed; a rule that no pod uses need not be proved\n" in looked
    assert '"differ": 0' in looked
    assert "0 errors, 0 warnings; checked: service" in looked
    assert "0 errors, 0 warnings; checked: service" in checked
