"""`extender domain`: lists topology domains, and excludes one from spread constraints for a time, as when a zone is drained.

Reads and writes only the TopologyDomains of a cluster. The directive `spread` of a policy says which pods leave out an excluded
domain.
"""

import argparse
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

import orjson

from extender.cli.files import access_to
from extender.cli.main import CommandError, Commands, say
from extender.cli.parser import add_cluster
from extender.cli.sources import add_output, cluster_of, print_document, table
from extender.compose.process import run_on_loop
from extender.kube.errors import KubeError, NotFound
from extender.kube.listing import read_list
from extender.kube.session import MERGE_PATCH, Session, open_session
from extender.kube.timing import SystemClock
from extender.model.constraints.labels import ZONE, is_label_key, is_label_value
from extender.model.objects import DOMAINS_KIND, MOST_TOPOLOGY_DOMAINS
from extender.model.policies import GROUP, VERSION, JsonObject
from extender.model.units import Duration, agreeing, counted, read_time, rfc3339
from extender.settings.connections import Kube
from extender.wire.objects.kinds import TOPOLOGY_DOMAINS

T = TypeVar("T")

_LIMIT: Final = 10.0
_LONGEST: Final = 30 * 24 * 3600.0
_LONGEST_REASON: Final = 256
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def add_parser(commands: Commands) -> None:
    """Adds the parser."""
    parser = commands.add_parser(
        "domain",
        help="list topology domains, and exclude one from spread for a time",
        examples=["exclude zone-a --for 2h", "list"],
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    exclude = actions.add_parser(
        "exclude",
        help="exclude a domain: it takes no pods, and spread constraints ignore it",
        examples=["zone-a --for 2h --reason maintenance"],
    )
    exclude.add_argument("domain", metavar="DOMAIN", help="the value of the topology key, such as a zone")
    exclude.add_argument(
        "--for", dest="duration", metavar="DURATION", default="", help="how long, such as 2h (default: without end)"
    )
    exclude.add_argument("--reason", metavar="TEXT", default="", help="why, for explanations")
    exclude.set_defaults(run=run_exclude)
    include = actions.add_parser("include", help="end the exclusion of a domain", examples=["zone-a"])
    include.add_argument("domain", metavar="DOMAIN")
    include.set_defaults(run=run_include)
    listing = actions.add_parser("list", help="show the domains that are declared or excluded", examples=["-o wide"])
    add_output(listing)
    listing.set_defaults(run=run_list)
    for action in (exclude, include, listing):
        add_cluster(action, action, "access to the cluster (as kubectl)")
    for action in (exclude, include):
        action.add_argument("--key", metavar="KEY", default=ZONE, help=f"the topology key (default {ZONE})")


def run_exclude(arguments: argparse.Namespace) -> int:
    """Writes the exclusion into the TopologyDomains of the key. Returns 0."""
    now, until = datetime.now(UTC), ""
    if not is_label_value(arguments.domain) or not arguments.domain:
        raise CommandError(f"DOMAIN: {arguments.domain!r} is no value of a label")
    if not is_label_key(arguments.key):
        raise CommandError(f"--key: {arguments.key!r} is no key of a label")
    if len(arguments.reason) > _LONGEST_REASON:
        raise CommandError(f"--reason: has more than {_LONGEST_REASON} characters")
    if arguments.duration:
        until = rfc3339(now + timedelta(seconds=_duration(arguments.duration)))
    added: JsonObject = {"domain": arguments.domain, "since": rfc3339(now)}
    added |= {name: text for name, text in (("until", until), ("reason", arguments.reason)) if text}

    def change(excluded: list[JsonObject]) -> list[JsonObject]:
        # In place of an earlier exclusion of the domain: the last command decides when it ends.
        return [*(exclusion for exclusion in excluded if exclusion.get("domain") != arguments.domain), added]

    name = _changed(arguments, change)
    say(f"{arguments.key}={arguments.domain} is excluded{f' until {until}' if until else ''} (TopologyDomains {name})")
    return 0


def run_include(arguments: argparse.Namespace) -> int:
    """Takes the exclusion out again. Returns 0."""

    def change(excluded: list[JsonObject]) -> list[JsonObject]:
        left = [exclusion for exclusion in excluded if exclusion.get("domain") != arguments.domain]
        if len(left) == len(excluded):
            raise CommandError(f"{arguments.key}={arguments.domain} is not excluded")
        return left

    name = _changed(arguments, change)
    say(f"{arguments.key}={arguments.domain} counts again (TopologyDomains {name})")
    return 0


def run_list(arguments: argparse.Namespace) -> int:
    """Prints the domains. Returns 0, also where there are none."""
    objects, now = _with_session(cluster_of(arguments), _read), datetime.now(UTC)
    if arguments.output in ("json", "yaml"):
        documents = [{"name": obj["metadata"]["name"], "spec": obj.get("spec") or {}} for obj in objects]
        print_document(documents, arguments.output)
        return 0
    rows = [row for obj in objects[:MOST_TOPOLOGY_DOMAINS] for row in _rows(obj, now)]
    say(
        *table([("KEY", "DOMAIN", "DECLARED", "EXCLUDED", "WHY"), *rows], indent="") if rows else ["no TopologyDomains"]
    )
    beyond = len(objects) - MOST_TOPOLOGY_DOMAINS
    if beyond > 0:
        have = agreeing(beyond, "has", "have")
        say(f"{counted(beyond, 'object')} {have} no effect: the first {MOST_TOPOLOGY_DOMAINS} by name are read")
    return 0


def _duration(text: str) -> float:
    try:
        seconds = Duration.parse(text)
    except ValueError as error:
        raise CommandError(f"--for: {error}") from None
    if not 0 < seconds <= _LONGEST:
        raise CommandError(f"--for: must be more than 0 and at most {Duration(_LONGEST)}")
    return float(seconds)


def _rows(obj: JsonObject, now: datetime) -> Sequence[tuple[str, str, str, str, str]]:
    spec = obj.get("spec") or {}
    declared, excluded = (
        spec.get("domains") or [],
        {exclusion.get("domain", ""): exclusion for exclusion in spec.get("excluded") or []},
    )
    rows = []
    for domain in dict.fromkeys([*declared, *excluded]):
        exclusion = excluded.get(domain)
        until = None if exclusion is None else read_time(exclusion.get("until"))
        state = "no"
        if exclusion is not None and (until is None or until > now):
            state = "yes" if until is None else f"until {rfc3339(until)}"
        why = "" if exclusion is None or state == "no" else exclusion.get("reason") or ""
        rows.append((spec.get("topologyKey") or "", domain, "yes" if domain in declared else "no", state, why))
    return rows


def _changed(arguments: argparse.Namespace, change: Callable[[list[JsonObject]], list[JsonObject]]) -> str:
    """Changes the exclusions of the first TopologyDomains of the key, or of a new one; returns its name. Raises CommandError."""

    async def write(session: Session) -> str:
        read = (await _read(session))[:MOST_TOPOLOGY_DOMAINS]
        of_key = [obj for obj in read if (obj.get("spec") or {}).get("topologyKey") == arguments.key]
        holding = [
            obj for obj in of_key if any(exclusion.get("domain") == arguments.domain for exclusion in _excluded(obj))
        ]
        # The object that excludes the domain already, so that one domain has one exclusion. Else the first of the key.
        changed = next(iter([*holding, *of_key]), None)
        if changed is None:
            return await _create(session, arguments.key, change([]), others={obj["metadata"]["name"] for obj in read})
        name, version = changed["metadata"]["name"], changed["metadata"]["resourceVersion"]
        # The name becomes part of a path. An API server with another validation must not lead the request elsewhere.
        if not _NAME.fullmatch(name):
            raise CommandError(f"TopologyDomains {name}: this name cannot be part of a URL path")
        # A merge patch replaces the whole list. With the resourceVersion the API server answers 409 if another writer
        # was faster.
        body = {"metadata": {"resourceVersion": version}, "spec": {"excluded": change(_excluded(changed))}}
        path = f"{TOPOLOGY_DOMAINS.path}/{name}"
        await session.writes.call("PATCH", path, body=body, content_type=MERGE_PATCH, limit=_LIMIT)
        return str(name)

    return _with_session(cluster_of(arguments), write)


async def _create(session: Session, key: str, excluded: list[JsonObject], others: Collection[str]) -> str:
    """A TopologyDomains for the key that declares no domain; returns its name. Raises CommandError."""
    # Example: topology.kubernetes.io/zone becomes topology.kubernetes.io-zone.
    name = re.sub("[^a-z0-9.]+", "-", key.lower())
    if name in others:
        raise CommandError(
            f"no TopologyDomains has the key {key}, and the name {name} is taken: create an object for this key by hand"
        )
    # Objects beyond the first ones by name are ignored by the extender, so the exclusion would be written and do
    # nothing.
    if len(others) >= MOST_TOPOLOGY_DOMAINS:
        raise CommandError(
            f"no TopologyDomains has the key {key}, and a further object has no effect: only {MOST_TOPOLOGY_DOMAINS} are read"
        )
    body = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": DOMAINS_KIND,
        "metadata": {"name": name},
        "spec": {"topologyKey": key, "domains": [], "excluded": excluded},
    }
    await session.writes.call("POST", TOPOLOGY_DOMAINS.path, body=body, limit=_LIMIT)
    return name


def _excluded(obj: JsonObject) -> list[JsonObject]:
    return list((obj.get("spec") or {}).get("excluded") or [])


async def _read(session: Session) -> list[JsonObject]:
    try:
        items = await read_list(session.reads, TOPOLOGY_DOMAINS.path)
    except NotFound:
        resource = f"{TOPOLOGY_DOMAINS.resource}.{TOPOLOGY_DOMAINS.group}"
        raise CommandError(
            f"the API server does not serve {resource}", "install the CRD: kubectl apply -f deploy/policies/crds.yaml"
        ) from None
    return sorted(map(orjson.loads, items), key=_name)


def _name(obj: JsonObject) -> str:
    return str(obj["metadata"]["name"])


def _with_session(kube: Kube, act: Callable[[Session], Awaitable[T]]) -> T:
    async def run() -> T:
        async with open_session(access_to(kube), SystemClock()) as session:
            return await act(session)

    try:
        return run_on_loop(run())
    except KubeError as error:
        raise CommandError(f"the API server: {error}") from None
