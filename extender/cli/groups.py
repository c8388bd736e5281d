"""`extender groups`: lists the groups of gated pods: how far each is, where it goes, how long it waits, and why.

Below them it lists the domains of policies that list or limit domains, and what pods use of each.

Reads policies, pods and GroupPlacements from a cluster or a snapshot, and changes nothing.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from extender.cli.files import access_to
from extender.cli.main import CommandError, Commands, say
from extender.cli.parser import add_cluster
from extender.cli.progress import progress
from extender.cli.sources import add_config, add_output, cluster_of, print_document, settings_of, snapshot_of, table
from extender.compose.process import run_on_loop
from extender.doctor.facts import Groups
from extender.index.cluster import ClusterIndex
from extender.kube.errors import KubeError, NotFound
from extender.kube.listing import read_pages
from extender.kube.session import Connection, open_session
from extender.kube.timing import SystemClock
from extender.model.group_placements import PLACEMENT_KIND, GroupPlacement
from extender.model.objects import Namespace, Object, Pod
from extender.model.policies import PolicyKey, PolicyObject
from extender.model.release import DomainUse, Level
from extender.model.resources import PODS, quantity_text
from extender.model.units import ago, rfc3339
from extender.rules.catalog import counts_of_rules
from extender.settings.configuration import Settings
from extender.settings.connections import Kube
from extender.settings.limits import ConstraintLimits
from extender.tasks.policy_status import domain_status
from extender.tasks.release.groups import group_state
from extender.verbs.release.progress import GroupOverview, StrayPod, group_overview, stray_pods
from extender.wire.errors import WireError
from extender.wire.objects.kinds import WATCHED_KINDS, Kind, is_policy_kind

_HEADINGS: Final = ("NAMESPACE", "POLICY", "GROUP", "STATE", "DOMAIN", "PODS", "RELEASED", "BOUND", "AGE", "WHY")
_MORE: Final = ("SINCE", "OVERDUE", "REASON")  # of the wide form
_DOMAINS: Final = ("POLICY", "DOMAIN", "PODS", "RESOURCES", "MAY GROW")
_NONE: Final = "-"
_STRAY: Final = "Stray"
_READ: Final = ("Namespace", "Pod", PLACEMENT_KIND)


def add_parser(commands: Commands) -> None:
    """Adds the parser."""
    parser = commands.add_parser(
        "groups", help="list the groups of gated pods, and why they wait", examples=["-n shop --waiting"]
    )
    parser.add_argument("-n", "--namespace", metavar="NS", default="", help="only the groups of this namespace")
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="the groups of all namespaces (default)")
    parser.add_argument("--waiting", action="store_true", help="only the groups with pods at the gate")
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--snapshot",
        metavar="FILE",
        help='kubectl get namespaces,pods,podpol,cpodpol,groupplacements -A -o json; "-" for standard input',
    )
    add_cluster(parser, source, "access to the cluster (as kubectl)")
    add_config(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the list. Returns 0, also where there are none."""
    settings = settings_of(arguments)
    if arguments.snapshot:
        objects: Iterable[Object] = snapshot_of(arguments.snapshot, settings.limits).objects
    else:
        try:
            with progress("reads the cluster"):
                objects = run_on_loop(_read_cluster(cluster_of(arguments), settings.limits))
        except KubeError as error:
            raise CommandError(f"the API server cannot be read: {error}") from None
    listed = groups_of(objects, settings)
    now = datetime.now(UTC)

    def is_in(namespace: str) -> bool:
        return arguments.all_namespaces or arguments.namespace in ("", namespace)

    groups = [
        group for group in listed.groups if is_in(group.key.namespace) and (group.is_waiting or not arguments.waiting)
    ]
    strays = [stray for stray in listed.strays if is_in(stray.pod.partition("/")[0])]
    domains = [domain for domain in listed.domains if not domain[0].namespace or is_in(domain[0].namespace)]
    shown = Groups(groups, strays, domains)
    if arguments.output in {"table", "wide"}:
        _print_table(shown, now, is_wide=arguments.output == "wide")
    else:
        print_document(_documents(shown, now), arguments.output)
    return 0


def groups_of(objects: Iterable[Object], settings: Settings, *, is_partial: bool = False) -> Groups:
    """The groups that policies, pods and GroupPlacements make, by namespace, policy and value. O(objects).

    ``is_partial``: the objects lack bound pods.
    """
    index = ClusterIndex(settings.rules, counts_of_rules())
    # Objects come in any order. The index files pods again when their policy comes.
    for obj in filter(_is_of_groups, objects):
        index.upsert(obj)
    groups = [
        group_overview(state, index.placements.of(key), is_partial=is_partial)
        for key in sorted(index.gated.groups)
        if (state := group_state(key, index)) is not None
    ]
    # A gated pod in no group waits for a policy that was deleted or never existed: nothing will remove its gate.
    grouped = {uid for group in index.gated for uid in group.roles}
    strays = sorted(stray_pods(index.pods.values(), grouped), key=lambda stray: stray.pod)
    policies = sorted(index.policies, key=lambda policy: str(policy.key))
    domains = [(policy.key, uses) for policy in policies if (uses := index.gated.charges.uses(policy))]
    return Groups(groups, strays, domains)


async def _read_cluster(kube: Kube, limits: ConstraintLimits) -> list[Object]:
    async with open_session(access_to(kube), SystemClock()) as session:
        return await read_groups(session.reads, limits)


async def read_groups(connection: Connection, limits: ConstraintLimits, **pods: str) -> list[Object]:
    """The objects that groups are made from. Raises ``KubeError``; a kind that is not served has no objects.

    ``pods``: parameters of the query for pods, such as ``fieldSelector``. Pods that never waited at a gate are dropped after each
    page, so that the pods of a large cluster are never held all at once.
    """
    objects: list[Object] = []
    for watched in WATCHED_KINDS:
        if watched.api_kind not in _READ and not is_policy_kind(watched):
            continue
        kind, selection = watched.within(limits), pods if watched.api_kind == "Pod" else {}
        try:
            async for page in read_pages(connection, kind.path, **selection):
                objects += filter(_is_of_groups, _decoded(kind, page))
        except NotFound:
            # The CRDs of policies are installed only where policies are used.
            continue
    return objects


def _decoded(kind: Kind[Any], bodies: Iterable[bytes]) -> Iterator[Object]:
    for body in bodies:
        try:
            yield kind.decode_object(body)
        except WireError as error:
            say(f"{kind.name}: skipped: {error}", to=sys.stderr)


def _is_of_groups(obj: Object) -> bool:
    """Whether groups depend on the object. Others are dropped, because to count their constraints would take the most time."""
    return (
        obj.gating is not None if isinstance(obj, Pod) else isinstance(obj, Namespace | PolicyObject | GroupPlacement)
    )


async def read_unbound_groups(connection: Connection, settings: Settings) -> Groups | None:
    """The groups as far as pods without a node show them; None where the account may not read them."""
    try:
        # Gated pods have no node, and they are few. The list of all pods would be much larger.
        objects = await read_groups(connection, settings.limits, fieldSelector="spec.nodeName=")
    except KubeError as error:
        if error.status in (HTTPStatus.FORBIDDEN, HTTPStatus.UNAUTHORIZED):
            return None
        raise
    return groups_of(objects, settings, is_partial=True)


# ---- output


def _print_table(listed: Groups, now: datetime, *, is_wide: bool) -> None:
    rows = [_row(group, now, is_wide=is_wide) for group in listed.groups]
    rows += [_stray_row(stray, now, is_wide=is_wide) for stray in listed.strays]
    if rows:
        say(*table([(*_HEADINGS[:-1], *(_MORE if is_wide else ()), _HEADINGS[-1]), *rows], "   ", ""))
    else:
        say("no groups of gated pods")
    uses = [_use_row(key, use, is_wide=is_wide) for key, domains in listed.domains for use in domains]
    if uses:
        say("", *table([_DOMAINS, *uses], "   ", ""))


def _use_row(key: PolicyKey, use: DomainUse, *, is_wide: bool) -> tuple[str, ...]:
    """What is used of the quota, such as ``4 of 40``."""

    def text(resource: str) -> str:
        used, most = use.used.get(resource, 0), use.quota.get(resource)
        return quantity_text(resource, used) + ("" if most is None else f" of {quantity_text(resource, most)}")

    # Resources with a quota, and resources that are used without one.
    others = sorted({*use.quota, *use.used} - {PODS})
    resources = ", ".join(f"{resource} {text(resource)}" for resource in others) or _NONE
    policy = str(key) if is_wide else f"{key.namespace}/{key.name}".removeprefix("/")
    return policy, use.name, text(PODS), resources, "yes" if use.may_grow else "no"


def _row(group: GroupOverview, now: datetime, *, is_wide: bool) -> tuple[str, ...]:
    key, since = group.key, group.since and rfc3339(group.since)
    more = (since or _NONE, "yes" if group.is_overdue(now) else "no", str(group.reason) or _NONE) if is_wide else ()
    return (
        key.namespace,
        key.policy if is_wide else key.policy.rpartition("/")[2],
        key.value,
        str(group.phase),
        ",".join(level.text for level in group.levels) or _NONE,
        f"{group.pods}/{group.size or '?'}",
        str(group.released),
        str(group.bound),
        ago(group.age(now)) if group.since is not None else _NONE,
        *more,
        group.message or group.reason,
    )


def _stray_row(stray: StrayPod, now: datetime, *, is_wide: bool) -> tuple[str, ...]:
    namespace, _, name = stray.pod.partition("/")
    age = _NONE if stray.since is None else ago(max((now - stray.since).total_seconds(), 0.0))
    why = f"no policy removes the gate {stray.gate}"
    # Overdue from the start: no policy means that no time is allowed.
    more = ((stray.since and rfc3339(stray.since)) or _NONE, "yes", _NONE) if is_wide else ()
    return (namespace, _NONE, f"pod/{name}", _STRAY, _NONE, "1/1", "0", "0", age, *more, why)


def _documents(listed: Groups, now: datetime) -> dict[str, Any]:
    groups = [_document(group, now) for group in listed.groups]
    strays = [
        {"pod": stray.pod, "gate": stray.gate, "since": stray.since and rfc3339(stray.since)} for stray in listed.strays
    ]
    domains = [{"policy": str(key), **domain_status(use)} for key, uses in listed.domains for use in uses]
    return {"groups": groups, "strayPods": strays, "domains": domains}


def _document(group: GroupOverview, now: datetime) -> dict[str, Any]:
    return {
        "namespace": group.key.namespace,
        "policy": group.key.policy,
        "group": group.key.value,
        "phase": str(group.phase),
        "domain": [_level(level) for level in group.levels],
        "size": group.size,
        "pods": group.pods,
        "released": group.released,
        "bound": group.bound,
        "since": group.since and rfc3339(group.since),
        "ageSeconds": round(group.age(now)),
        "overdue": group.is_overdue(now),
        "reason": group.reason,
        "message": group.message,
    }


def _level(level: Level) -> dict[str, Any]:
    several = {"values": list(level.values)} if level.values else {}
    return {"key": level.key, "value": level.value, **several}
