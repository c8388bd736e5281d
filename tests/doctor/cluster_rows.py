"""Wrong set-ups of a running service and its cluster, each with doctor's words and its remedy as a change of the set-up.

The service is the real one, and the API server the simulator's. A row makes the set-up wrong, and right again by the remedy that doctor
prints: what can be read from the text (a file, a tag, a command) is taken from there.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from extender.cli.files import read_yaml
from extender.settings.configuration import API_VERSION, KIND
from extender.simulator.apiserver.kinds import LEASES, PODS, ServedKind
from extender.simulator.json_objects import JsonObject
from tests.cli.doctor_set_up import Setup, stands
from tests.cli.serving import QUESTION
from tests.deploy.building import ROOT, load_all, of_kind, overlay
from tests.simulator.plain import pod

OUR_LABELS = {"app.kubernetes.io/name": "placement-extender", "app.kubernetes.io/component": "extender"}
GUARDS = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")


@dataclass
class Playing:
    """A set-up that is played. ``arguments``: of doctor, beside the usual ones."""

    setup: Setup
    arguments: list[str] = field(default_factory=list)

    def put(self, kind: ServedKind, obj: JsonObject) -> None:
        self.setup.api.store.put(kind, obj)

    def remove(self, kind: ServedKind, key: str) -> None:
        self.setup.api.store.remove(kind, key)

    def has(self, kind: ServedKind, key: str) -> bool:
        return key in self.setup.api.store.table(kind).objects

    def read(self, kind: ServedKind, key: str) -> JsonObject:
        return self.setup.api.store.find(kind, key).read()

    def write(self, name: str, document: object) -> str:
        path = self.setup.folder / name
        path.write_text(json.dumps(document), "utf-8")
        return str(path)

    def scheduled(self, **changes: object) -> None:
        """Doctor reads a scheduler's configuration that is right but for these changes of the top of the file."""
        document = read_yaml(self.setup.scheduler())
        assert isinstance(document, dict)
        self.arguments = ["--scheduler-config", self.write("changed.yaml", document | changes)]

    def document(self) -> dict[str, Any]:
        """The scheduler's configuration that doctor reads."""
        document = read_yaml(self.arguments[1])
        assert isinstance(document, dict)
        return document


Change = Callable[[Playing], Awaitable[None] | None]
Remedy = Callable[[Playing, str], Awaitable[None] | None]


@dataclass(frozen=True)
class Row:
    """``problem``: as in a shell, ``*`` is any text. ``remedy``: how its text begins. ``choices``: a change for each remedy in it."""

    problem: str
    remedy: str
    wrong: Change
    choices: tuple[Remedy, ...]


def runs(name: str, namespace: str, image: str = "any", container: str = "extender", **labels: str) -> JsonObject:
    """A running pod of an overlay, or of a control plane."""
    made = pod(name, namespace, on="node-a", labels=OUR_LABELS | labels, status={"phase": "Running"})
    made["metadata"]["uid"] = f"{namespace}-{name}"
    made["spec"]["containers"] = [{"name": container, "image": image}]
    return made


# -- what surrounds the service


def denying(*names: str) -> Change:
    def wrong(one: Playing) -> None:
        one.setup.api.denied = frozenset(names)

    return wrong


def granted_by_the_manifest(one: Playing, text: str) -> None:
    """What `kubectl apply -k` of an overlay with this manifest grants."""
    (manifest,) = re.findall(r"where (deploy/\S+\.yaml) grants it", text)
    rules: list[JsonObject] = []
    for document in load_all(ROOT / manifest):
        rules += document.get("rules") or ()
        for patch in document.get("patches") or ():
            rules += [step["value"] for step in yaml.safe_load(patch["patch"])]
    given = {f"{verb}/{what}" for rule in rules for verb, what in product(rule["verbs"], rule["resources"])}
    assert one.setup.api.denied & given, manifest
    one.setup.api.denied -= given


def behind(one: Playing) -> None:
    one.setup.api.behind = 3600


def in_time(one: Playing, _: str) -> None:
    one.setup.api.behind = 0


def two_replicas(one: Playing) -> None:
    for name in ("e-1", "e-2"):
        one.put(PODS, runs(name, "placement-extender"))


def one_replica(one: Playing, _: str) -> None:
    one.remove(PODS, "placement-extender/e-2")


def unguarded(*kept: str) -> Change:
    def wrong(one: Playing) -> None:
        one.put(PODS, runs("e-1", "placement-extender"))
        one.setup.api.guards = {plural: guards()[plural] if plural in kept else [] for plural in GUARDS}

    return wrong


def guards() -> dict[str, list[JsonObject]]:
    """What the overlay applies."""
    kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    return {plural: of_kind(overlay("service"), kind) for plural, kind in zip(GUARDS, kinds, strict=True)}


def guarded(one: Playing, text: str) -> None:
    assert "kubectl apply -k deploy/overlays/" in text
    one.setup.api.guards = guards()


def of_version(version: str, tag: str = "") -> Change:
    def wrong(one: Playing) -> None:
        one.setup.api.version = version
        if tag:
            image = f"registry.k8s.io/kube-scheduler:{tag}"
            labels = {"app.kubernetes.io/component": "scheduler"}
            one.put(PODS, runs("placement-scheduler-0", "placement-shared", image, "kube-scheduler", **labels))

    return wrong


def with_the_tag(one: Playing, text: str) -> None:
    (tag,) = re.findall(r"set the tag of registry\.k8s\.io/kube-scheduler to (\S+):", text)
    scheduler = one.read(PODS, "placement-shared/placement-scheduler-0")
    scheduler["spec"]["containers"][0]["image"] = f"registry.k8s.io/kube-scheduler:{tag}"
    one.put(PODS, scheduler)


def upgraded(one: Playing, text: str) -> None:
    (version,) = re.findall(r"else upgrade to (1\.\d+)", text)
    one.setup.api.version = f"v{version}.0"


def dropping(one: Playing) -> None:
    one.setup.api.version, one.setup.api.drops = "v1.36.0", "schedulingGates"


def kept_again(one: Playing, text: str) -> None:
    assert text == "remove PodSchedulingReadiness=false from --feature-gates of kube-apiserver"
    one.setup.api.drops = ""


def another_account(one: Playing) -> None:
    other = one.setup.folder / "another"
    other.write_bytes(Path(one.setup.kubeconfig).read_bytes())
    one.arguments = ["--kubeconfig", str(other)]


def with_its_account(one: Playing, text: str) -> None:
    (option, account) = re.findall(r"\((--as) (\S+)\)", text)[0]
    one.arguments += [option, account.replace("NAMESPACE", "placement-extender")]


def with_its_kubeconfig(one: Playing, _: str) -> None:
    one.arguments = ["--kubeconfig", one.setup.kubeconfig]


def no_kubeconfig(one: Playing) -> None:
    one.arguments = ["--kubeconfig", "/nowhere/kubeconfig"]


def no_cluster(one: Playing, _: str) -> None:
    one.arguments.append("--no-cluster")


def a_lost_leader(one: Playing) -> None:
    """Doctor reads another configuration: of a service that does not answer, whose replicas share a Lease."""
    long_ago = (datetime.now(UTC) - timedelta(minutes=9)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    election = {"enabled": True, "leaseNamespace": "default", "leaseName": "lost"}
    config = {"apiVersion": API_VERSION, "kind": KIND, "leaderElection": election}
    one.arguments = ["--config", one.write("lost.yaml", config), "--url", "http://127.0.0.1:9"]
    metadata = {"name": "lost", "namespace": "default"}
    spec = {"holderIdentity": "extender-1", "renewTime": long_ago, "leaseDurationSeconds": 15}
    one.put(LEASES, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec})


def renewed(one: Playing, _: str) -> None:
    lease = one.read(LEASES, "default/lost")
    lease["spec"]["renewTime"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    one.put(LEASES, lease)


# -- the scheduler's configuration beside what runs


def another_extender(one: Playing) -> None:
    document = read_yaml(one.setup.scheduler())
    assert isinstance(document, dict)
    other = {"urlPrefix": "http://127.0.0.1:9", "filterVerb": "predicate"}
    one.scheduled(extenders=[*document["extenders"], other])


def it_runs(one: Playing, _: str) -> None:
    """The URL of a server that is there stands for the one that was started."""
    document = one.document()
    document["extenders"][1]["urlPrefix"] = one.setup.url.replace("127.0.0.1", "localhost")
    one.arguments = ["--scheduler-config", one.write("changed.yaml", document)]


def its_entry_is_gone(one: Playing, _: str) -> None:
    document = one.document()
    del document["extenders"][1]
    one.arguments = ["--scheduler-config", one.write("changed.yaml", document)]


def several_instances(one: Playing) -> None:
    labels = {"component": "kube-scheduler"}
    for name in ("kube-scheduler-a", "kube-scheduler-b"):
        one.put(PODS, runs(name, "kube-system", "any", "kube-scheduler", **labels))
    one.scheduled(leaderElection={"leaderElect": False})


def elected(one: Playing, text: str) -> None:
    assert "set leaderElect: true" in text
    one.scheduled(leaderElection={"leaderElect": True})


def the_first_lease(one: Playing) -> None:
    profiles = one_profile("placement-scheduler", one)
    one.scheduled(profiles=profiles, leaderElection={"leaderElect": True})


def one_profile(name: str, one: Playing) -> list[JsonObject]:
    document = read_yaml(one.setup.scheduler())
    assert isinstance(document, dict)
    return [{**document["profiles"][0], "schedulerName": name}]


def a_lease_of_its_own(one: Playing, text: str) -> None:
    (name,) = re.findall(r"set leaderElection\.resourceName: (\S+),", text)
    document = one.document()
    document["leaderElection"]["resourceName"] = name
    one.arguments = ["--scheduler-config", one.write("changed.yaml", document)]


# -- the address of the service


def at(url: str) -> Change:
    def wrong(one: Playing) -> None:
        one.arguments = ["--no-cluster", "--url", one.setup.url + url if url.startswith("/") else url]

    return wrong


def at_the_service(one: Playing, _: str) -> None:
    one.arguments = ["--no-cluster", "--url", one.setup.url]


def unknown_settings(one: Playing) -> None:
    one.arguments = ["--no-cluster", "--url", "http://127.0.0.1:9"]


def with_its_file(one: Playing, text: str) -> None:
    assert "with --config" in text
    one.arguments += ["--config", str(one.setup.folder / "extender.yaml")]


def readable_key(one: Playing) -> None:
    key = one.setup.folder / "client.key"
    key.write_text("key", "utf-8")
    key.chmod(0o644)
    one.arguments = ["--key-file", str(key)]


def as_printed(_: Playing, text: str) -> None:
    """The remedy is a command."""
    subprocess.check_call(shlex.split(text))


SURROUNDINGS = {
    "permissions to watch": Row(
        "the account may not watch nodes", "apply your overlay", denying("watch/nodes"), (granted_by_the_manifest,)
    ),
    "permissions to write": Row(
        "the account may not patch pods/status",
        "apply your overlay",
        denying("patch/pods/status"),
        (granted_by_the_manifest,),
    ),
    "clocks": Row("the clock of the API server is * s behind this one", "synchronize the clocks", behind, (in_time,)),
    "replicas without election": Row(
        "2 replicas of the extender run and leaderElection.enabled is false: *",
        "set leaderElection.enabled: true, or run one replica",
        two_replicas,
        (one_replica,),
    ),
    "no admission policy": Row(
        "no ValidatingAdmissionPolicy limits the extender, so its account may write every part of every pod",
        "apply your overlay, where deploy/base/admission.yaml has both",
        unguarded(),
        (guarded,),
    ),
    "no binding of the policy": Row(
        "the ValidatingAdmissionPolicy of the extender has no binding that denies, so its account *",
        "apply your overlay, where deploy/base/admission.yaml has both",
        unguarded(GUARDS[0]),
        (guarded,),
    ),
    "a newer scheduler": Row(
        "kube-scheduler v1.36.0 (placement-shared/placement-scheduler-0) is newer than the API server *",
        "set the tag",
        of_version("v1.33.1", "v1.36.0"),
        (with_the_tag,),
    ),
    "an older scheduler": Row(
        "kube-scheduler v1.30.0 (placement-shared/placement-scheduler-0) is older than the API server *",
        "set the tag",
        of_version("v1.33.1", "v1.30.0"),
        (with_the_tag,),
    ),
    "the placeholder": Row(
        "kube-scheduler * (placement-shared/placement-scheduler-0) never starts: its tag is the placeholder of the overlay",
        "set the tag",
        of_version("v1.33.1", "set-the-version-of-your-cluster"),
        (with_the_tag,),
    ),
    "a scheduler that was not tried": Row(
        "kube-scheduler v1.28.1 (placement-shared/placement-scheduler-0) was not tried; tried are *",
        "set the tag",
        of_version("v1.29.1", "v1.28.1"),
        (with_the_tag,),
    ),
    "an old API server": Row(
        "the API server v1.30.1 lacks affinity-label-keys (1.31): *",
        "nothing to do if you need it not; else upgrade to 1.31",
        of_version("v1.30.1"),
        (upgraded,),
    ),
    "a gate that is off": Row(
        "the API server drops the field schedulingGates of new pods: *", "remove", dropping, (kept_again,)
    ),
    "another account": Row(
        "permissions were checked for the account of */another, which may not be the service's account",
        "name the service's account",
        another_account,
        (with_its_account, with_its_kubeconfig),
    ),
    "no kubeconfig": Row(
        "the API server cannot be read: *",
        "give a kubeconfig with --kubeconfig, or skip the cluster with --no-cluster",
        no_kubeconfig,
        (with_its_kubeconfig, no_cluster),
    ),
    "a Lease that is not renewed": Row(
        "extender-1 holds the Lease but has not renewed it for 9 minutes",
        "no replica runs, or none may update the Lease",
        a_lost_leader,
        (renewed,),
    ),
    "another extender": Row(
        "nothing answers at extenders[[]1], http://127.0.0.1:9, (Connection refused): the scheduler places no pod for which *",
        "start that extender, or remove its entry",
        another_extender,
        (it_runs, its_entry_is_gone),
    ),
    "instances without election": Row(
        "leaderElection.leaderElect is false, and 2 instances of this scheduler run, which place the same pods",
        "set leaderElect: true",
        several_instances,
        (elected,),
    ),
    "the Lease of the first scheduler": Row(
        "leaderElection names the Lease kube-system/kube-scheduler of the default scheduler: while that one holds it, no pod of placement-scheduler is placed",
        "set leaderElection.resourceName: placement-scheduler, and let its role name that Lease",
        the_first_lease,
        (a_lease_of_its_own,),
    ),
    "another port": Row(
        "http://127.0.0.1:9/configz cannot be reached: *",
        "check that it runs, and that --url has its address and port",
        at("http://127.0.0.1:9"),
        (at_the_service,),
    ),
    "no URL": Row(
        "ftp://extender/configz is not an http or https URL", "write --url http://HOST:PORT", at("ftp://extender"),
        (at_the_service,),
    ),
    "another path": Row(
        "http://*/nowhere/configz answers 404", "check that --url is the address of the extender", at("/nowhere"),
        (at_the_service,),
    ),
    "unknown settings": Row(
        "the settings of the extender are not known, so permissions, policies and the scheduler's configuration *",
        "give the extender's configuration file with --config",
        unknown_settings,
        (with_its_file,),
    ),
    "a key that all may read": Row(
        "every account of this machine can read */client.key", "chmod 600", readable_key, (as_printed,)
    ),
}  # fmt: skip


# -- the calls of kube-scheduler


async def called(one: Playing, times: int = 1, **question: object) -> None:
    """What kube-scheduler does, once it has the entry of the extender."""
    async with aiohttp.ClientSession() as session:
        for _ in range(times):
            await session.post(f"{one.setup.url}/filter", json=QUESTION | question)


def placed_without(one: Playing) -> None:
    one.put(PODS, stands("bound", "node-a"))


def with_the_generated_entry(one: Playing, text: str) -> Awaitable[None]:
    assert "put the output of `extender config generate` into the scheduler's --config file and restart it" in text
    return called(one)


def hidden_pods(one: Playing) -> None:
    one.setup.api.hides_pods = True


def listed_pods(one: Playing, text: str) -> None:
    assert "an account that may list pods" in text
    one.setup.api.hides_pods = False


def kept_out(one: Playing) -> None:
    one.put(PODS, stands("kept-out", "", "0/1 nodes are available: 1 node(s) had untolerated taint(s)."))


async def untainted(one: Playing, _: str) -> None:
    """Its scheduler has a node then, and calls the extender."""
    one.put(PODS, stands("kept-out", ""))
    await called(one)


async def whole_nodes(one: Playing) -> None:
    nodes = [{"metadata": {"name": name}} for name in ("node-a", "node-b")]
    await called(one, 3, NodeNames=None, Nodes={"items": nodes})


def with_names(one: Playing, text: str) -> Awaitable[None]:
    assert "set nodeCacheCapable: true" in text
    return called(one, 300)


CALLS = {
    "pods are placed without it": Row(
        "kube-scheduler has not called filter since the service started, but 1 pod was bound meanwhile: it places pods without the extender",
        "put the output of `extender config generate`",
        placed_without,
        (with_the_generated_entry,),
    ),
    "pods that may not be listed": Row(
        "kube-scheduler has not called filter since the service started; it is unknown whether any pod waited for it: *",
        "run this command as an account that may list pods in all namespaces",
        hidden_pods,
        (listed_pods,),
    ),
    "tainted nodes": Row(
        "kube-scheduler has not called filter since the service started: its own plugins reject every node first (*",
        "remove the cause in the message, such as a taint or missing resources",
        kept_out,
        (untainted,),
    ),
    "whole nodes": Row(
        "most requests contain whole nodes instead of names",
        "set nodeCacheCapable: true in the scheduler's extenders entry",
        whole_nodes,
        (with_names,),
    ),
}
