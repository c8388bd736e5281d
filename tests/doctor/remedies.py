"""Applies the remedies of `extender doctor` to files, as their texts say: the scheduler's configuration, and the extender's.

Each text of a remedy is known to one row of `ROWS`, and another text is an error: so no remedy stays that no test has applied.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import yaml

from extender.doctor.facts import Finding
from extender.doctor.scheduler_config import examine_scheduler, read_scheduler
from extender.doctor.service import examine_service
from extender.settings.configuration import Settings, parse_settings, settings_document
from tests.doctor.facts import GOOD
from tests.doctor.test_scheduler_config import FOREIGN, PEM, SECURE, STANZA, TLS
from tests.doctor.test_scheduler_validation import HEAD, POINT, names

NODES = 5000
_SETTINGS = frozenset({"exposure", "roles", "assumed"})  # checks that read the settings alone


@dataclass
class SetUp:
    """Two files: of kube-scheduler (``file``), and of the extender (``ours``); None: it is read without an extender.

    ``is_known``: whether doctor reads the extender's file.
    """

    file: dict[str, Any]
    ours: dict[str, Any] | None
    is_known: bool = True

    @classmethod
    def of(cls, file: dict[str, Any], ours: Settings | None, *, is_known: bool = True) -> SetUp:
        # Not a deepcopy: two places may have one object.
        return cls(json.loads(json.dumps(file)), None if ours is None else settings_document(ours), is_known)

    def findings(self) -> list[Finding]:
        config, found = read_scheduler(self.file)
        if self.ours is None:
            return found
        settings = parse_settings(self.ours)
        found += [] if config is None else examine_scheduler(config, settings if self.is_known else None, NODES)
        return [*found, *(one for one in examine_service(replace(GOOD, settings=settings)) if one.check in _SETTINGS)]

    def without(self, finding: Finding) -> list[SetUp]:
        """The set-up after the remedy; several where the text leaves a choice."""
        for pattern, steps in ROWS.items():
            if match := re.fullmatch(pattern, finding.remedy):
                changed = [deepcopy(self) for _ in steps]
                for one, step in zip(changed, steps, strict=True):
                    step(one, finding, match)
                return changed
        raise AssertionError(f"no row knows how to apply: {finding.remedy}")

    # -- places in the files

    @property
    def entry(self) -> dict[str, Any]:
        entries: list[dict[str, Any]] = self.file["extenders"]
        return next((entry for entry in entries if entry.get("urlPrefix") != FOREIGN["urlPrefix"]), entries[0])

    @property
    def profiles(self) -> list[dict[str, Any]]:
        profiles: list[dict[str, Any]] = self.file.setdefault("profiles", [{}])
        return profiles

    def place(self, finding: Finding) -> tuple[Any, Any]:
        """The parent of the field that a finding names, and the key of it there."""
        return self.at(names(finding))

    def at(self, path: str) -> tuple[Any, Any]:
        *way, last = (
            int(part[1:-1]) if part.startswith("[") else part for part in re.findall(r"\[\d+\]|[^.\[\]]+", path)
        )
        parent: Any = self.file
        for part in way:
            parent = parent.setdefault(part, {}) if isinstance(parent, dict) else parent[part]
        return parent, last

    def set(self, path: str, value: object) -> None:
        """Changes a setting of the extender."""
        assert self.ours is not None
        *way, last = path.split(".")
        part = self.ours
        for name in way:
            part = part.setdefault(name, {})
        part[last] = value


Step = Callable[[SetUp, Finding, re.Match[str]], None]


def to(value: object) -> Step:
    """Sets the field that is named."""

    def step(one: SetUp, finding: Finding, _: re.Match[str]) -> None:
        parent, key = one.place(finding)
        parent[key] = deepcopy(value)

    return step


def to_match(convert: Callable[[str], object]) -> Step:
    """Sets the field that is named to what the text says."""

    def step(one: SetUp, finding: Finding, match: re.Match[str]) -> None:
        parent, key = one.place(finding)
        parent[key] = convert(match[1])

    return step


def of_entry(**fields: object) -> Step:
    """Sets fields of our entry; None removes one."""

    def step(one: SetUp, _finding: Finding, _match: re.Match[str]) -> None:
        for name, value in fields.items():
            one.entry.pop(name, None)
            if value is not None:
                one.entry[name] = deepcopy(value)

    return step


def of_settings(path: str, value: object) -> Step:
    return lambda one, _finding, _match: one.set(path, value)


def of_file(**fields: object) -> Step:
    return lambda one, _finding, _match: one.file.update(deepcopy(fields))


def removed(one: SetUp, finding: Finding, _: re.Match[str]) -> None:
    """Removes what is named: a field, an item of a list, or the item that has a name."""
    parent, key = one.place(finding)
    if key == "name":
        parent, key = one.at(names(finding).removesuffix(".name"))
    if isinstance(parent, dict) and key not in parent:
        one.entry.pop(key)  # a field of our entry, without its path
    else:
        del parent[key]


def renamed(one: SetUp, finding: Finding, match: re.Match[str]) -> None:
    parent, key = one.place(finding)
    if isinstance(parent, list):
        parent[key]["name"] = match[1]  # a plugin
    else:
        parent[match[1]] = parent.pop(key)


_OF_TYPE: dict[str, object] = {
    "object": {},
    "array": [],
    "bool": True,
    "int": 1,
    "str": "any",
    "a duration": "15s",
    "InterPodAffinityArgs": "InterPodAffinityArgs",
    "Invalid base64": PEM,
}


def corrected(one: SetUp, finding: Finding, _: re.Match[str]) -> None:
    """A value of the type that the problem names. An item that is only a name becomes an object with it."""
    parent, key = one.place(finding)
    wanted = next(kind for kind in _OF_TYPE if re.search(rf"(expected |^\S+ ){kind}\b", finding.problem))
    is_named = wanted == "object" and isinstance(key, int) and isinstance(parent[key], str)
    is_item = is_named and names(finding).rpartition("[")[0].endswith(("disabled", "managedResources"))
    parent[key] = {"name": parent[key]} if is_item else deepcopy(_OF_TYPE[wanted])


def longer(one: SetUp, finding: Finding, _: re.Match[str]) -> None:
    parent, key = one.place(finding)
    (seconds,) = re.findall(r"\S+ \((\d+)s\)", finding.problem)[:1]
    parent[key] = f"{int(seconds) * 1.2:.0f}s"


def as_much(one: SetUp, finding: Finding, _: re.Match[str]) -> None:
    parent, key = one.place(finding)
    parent[key] = int(re.findall(r"\d+", finding.problem)[-1])


def named(one: SetUp, _finding: Finding, _match: re.Match[str]) -> None:
    for number, profile in enumerate(one.profiles):
        profile["schedulerName"] = f"scheduler-{number}"


def sorted_alike(one: SetUp, _finding: Finding, _match: re.Match[str]) -> None:
    for profile in one.profiles:
        profile.setdefault("plugins", {})["queueSort"] = {"enabled": [{"name": "PrioritySort"}]}


def first_alone(one: SetUp, finding: Finding, _: re.Match[str]) -> None:
    parent, key = one.place(finding)
    del parent[key][1:]


def enabled_under(one: SetUp, _finding: Finding, match: re.Match[str]) -> None:
    for profile in one.profiles:
        points = profile.setdefault("plugins", {}).setdefault(match[2], {})
        points["enabled"] = [*points.get("enabled", ()), {"name": match[1]}]


def moved(one: SetUp, finding: Finding, match: re.Match[str]) -> None:
    _, point, place = names(finding).rsplit(".", 2)
    for profile in one.profiles:
        plugin = profile["plugins"][point][re.sub(r"\[.*", "", place)].pop()
        profile["plugins"][match[1].split(" or ")[0]] = {"enabled": [plugin]}


def disabled(one: SetUp, finding: Finding, match: re.Match[str]) -> None:
    name = {"name": match[1]}
    for profile in one.profiles:
        everywhere = profile.setdefault("plugins", {}).setdefault("multiPoint", {})
        if name not in (before := everywhere.get("disabled", [])):
            everywhere["disabled"] = [*before, name]
        for points in profile["plugins"].values() if match[2] else ():
            points["enabled"] = [plugin for plugin in points.get("enabled", ()) if plugin["name"] != match[1]]
    assert match[1] in finding.problem


def not_disabled(one: SetUp, finding: Finding, _: re.Match[str]) -> None:
    (plugin,) = re.findall(r": (\w+) is disabled", finding.problem)
    for profile in one.profiles:
        for points in profile["plugins"].values():
            points["disabled"] = [other for other in points.get("disabled", ()) if other["name"] != plugin]


def offloaded(one: SetUp, _finding: Finding, _match: re.Match[str]) -> None:
    one.set("mode", "offload")
    for rule in ("interPodAffinity", "topologySpread"):
        one.set(f"rules.{rule}.enabled", value=True)


def no_ignored(one: SetUp, _finding: Finding, _match: re.Match[str]) -> None:
    for resource in one.entry["managedResources"]:
        resource.pop("ignoredByScheduler")


def fitting(one: SetUp, finding: Finding, match: re.Match[str]) -> None:
    enabled_under(one, finding, re.match("(.*) (.*)", f"{match[1]} multiPoint"))  # type: ignore[arg-type]


def answered_path(one: SetUp, finding: Finding, _: re.Match[str]) -> None:
    (verb, path), prefix = re.findall(r"^(\w+) leads to \S+ but the extender answers at (\S+):", finding.problem)[0], ""
    one.entry[verb] = path.lstrip("/")
    one.entry["urlPrefix"] = re.sub(r"(//[^/]+).*", rf"\1{prefix}", one.entry["urlPrefix"])


def one_ca(one: SetUp, _finding: Finding, _match: re.Match[str]) -> None:
    tls = one.entry.setdefault("tlsConfig", {})
    tls["caFile"] = "/ca.crt"
    tls.pop("insecure", None)


def one_client(one: SetUp, _finding: Finding, _match: re.Match[str]) -> None:
    one.entry["tlsConfig"] |= {"certFile": "/client.crt", "keyFile": "/client.key"}


def a_second_longer(one: SetUp, finding: Finding, _: re.Match[str]) -> None:
    (seconds,) = re.findall(r"requestTimeout \((\d+)s\)", finding.problem)
    one.entry["httpTimeout"] = f"{int(seconds) + 1}s"


def percentage(one: SetUp, finding: Finding, match: re.Match[str]) -> None:
    own = re.match(r"profile (\S+): ", finding.problem)
    holders = [one.file] if own is None else [each for each in one.profiles if each["schedulerName"] == own[1]]
    for holder in holders:
        holder.pop("percentageOfNodesToScore")
        if match[1] != "remove it":
            holder["percentageOfNodesToScore"] = int(match[1].split()[-1])


def percentage_and_elsewhere(one: SetUp, finding: Finding, match: re.Match[str]) -> None:
    percentage(one, finding, match)
    one.set("rejectedPods.nominateElsewhere", value=True)


def recommended(one: SetUp, _finding: Finding, _match: re.Match[str]) -> None:
    one.file["percentageOfNodesToScore"] = 2
    (profile,) = one.profiles
    name = profile.setdefault("schedulerName", "default-scheduler")
    every = {"schedulerName": f"{name}-all-nodes", "percentageOfNodesToScore": 100}
    one.profiles.append({**deepcopy(profile), **every})


def written_settings(one: SetUp, _finding: Finding, match: re.Match[str]) -> None:
    ((path, value),) = yaml.safe_load(match[1]).items()
    one.set(path, value)


def read_and_written(one: SetUp, finding: Finding, match: re.Match[str]) -> None:
    one.is_known = True  # which is how to see whether it has it
    written_settings(one, finding, match)


def strategy(one: SetUp, finding: Finding, _: re.Match[str]) -> None:
    (theirs,) = re.findall(r"scores by (\w+),", finding.problem)
    one.set("answers.scoringStrategy", theirs)


def plain(one: SetUp, _finding: Finding, _match: re.Match[str]) -> None:
    """HTTP on both sides: the service has no certificate."""
    if one.ours is not None and one.ours["server"]["tls"]["certFile"]:
        secured(one, _finding, _match)
    else:
        one.entry["urlPrefix"] = one.entry["urlPrefix"].replace("https:", "http:")
        one.entry.pop("enableHTTPS", None)


def secured(one: SetUp, _finding: Finding, _match: re.Match[str]) -> None:
    one.entry.update(deepcopy(SECURE) | {"urlPrefix": one.entry["urlPrefix"].replace("http:", "https:")})


def served_by_https(one: SetUp, finding: Finding, match: re.Match[str]) -> None:
    one.set("server.tls", TLS["tls"])
    secured(one, finding, match)


def term(one: SetUp, finding: Finding, _: re.Match[str]) -> None:
    parent, key = one.place(finding)
    field = {"key": "metadata.name"} if "matchFields" in names(finding) else {"key": "zone"}
    parent[key] = {**field, "operator": "In", "values": ["a"]}


def deleted_field(one: SetUp, finding: Finding, _: re.Match[str]) -> None:
    one.entry.pop(finding.problem.partition(" ")[0])


def set_of_entry(one: SetUp, finding: Finding, _: re.Match[str]) -> None:
    field = finding.problem.partition(" ")[0]
    one.entry.update({field: field.removesuffix("Verb"), "weight": 1})


ROWS: dict[str, tuple[Step, ...]] = {
    # a file that kube-scheduler cannot read
    r"give the scheduler's --config file": (lambda one, _finding, _match: one.file.update(HEAD),),
    r"set (kubescheduler\.\S+), and what that version has of the fields": (to_match(str),),
    r"write (\w+)": (renamed,),
    r"correct it: kube-scheduler reads its file strictly": (corrected,),
    # a value that it refuses
    r"set (\d+) (?:or more|to \d+)": (
        lambda one, finding, match: (of_entry(weight=1) if finding.problem.startswith("weight") else to_match(int))(
            one, finding, match
        ),
    ),
    r"set (1)": (to_match(int),),
    r"set (1s) or more": (to_match(str),),
    r"set ([A-Z]\w+|leases)(?: or \w+)*": (to_match(str),),
    r"set a label key of nodes": (to("topology.kubernetes.io/zone"),),
    r"set at least as much": (as_much,),
    r"set one of them": (to(10),),
    r"make it longer; the defaults are .*": (longer,),
    r"give (?:each|each of several) profiles? a name of its own": (named,),
    r"make it the same in all profiles": (sorted_alike,),
    r"remove it|give one for each plugin|remove it: selectors are deduced for each pod|remove it, or set type \w+"
    r"|let one of them bind": (removed,),
    r"remove it; with the gate on nothing is to do": (removed,),
    r"enable one": (first_alone,),
    r"enable (\w+) under plugins\.(\w+)": (enabled_under,),
    r"enable it at (.*)": (moved,),
    r"enable (NodeResourcesFit), or remove ignoredByScheduler": (fitting, no_ignored),
    r"correct it": (to("example.com/gpu"),),
    r"correct it as in a pod's node affinity": (term,),
    r"write the part before the /": (to("example.com"),),
    r"give one or more": (to([POINT]),),
    r"sort the points by it": (to(1),),
    r"give the base64 of a file in PEM form": (to({"caData": PEM}),),
    r"write one such as (\S+)": (to_match(str),),
    r"remove it, unless yours was": (removed,),
    # our entry
    r"add the extenders entry that `extender config generate` prints": (of_file(extenders=[STANZA]),),
    r"add the extenders entry [^;]*, and keep the entries of other extenders(; where the service has others, .*)?": (
        lambda one, _finding, _match: one.file["extenders"].append(deepcopy(STANZA)),
    ),
    r"nothing to do behind a Service with another port; else correct urlPrefix": (
        of_entry(urlPrefix=STANZA["urlPrefix"]),
    ),
    r"set it: without it .*|set it, and weight: 1: .*": (set_of_entry,),
    r"remove it: it costs a call for each pod without constraints": (deleted_field,),
    r"make urlPrefix and the verb together equal to server\.paths": (answered_path,),
    r"remove bindVerb; or set server\.paths\.bind, and add .*": (
        of_entry(bindVerb=None),
        of_settings("server.paths.bind", "/bind"),
    ),
    r"set tlsConfig\.caFile or caData, (?:and remove insecure|unless one of these CAs .*)": (one_ca,),
    r"write https:// in urlPrefix, or remove enableHTTPS": (
        of_entry(**SECURE),
        of_entry(enableHTTPS=None),
    ),
    r"set server\.tls \(`extender certs`\), and https:// in urlPrefix with tlsConfig": (served_by_https,),
    r"use the Service's clusterIP for such a scheduler": (of_entry(urlPrefix="https://10.96.0.9:8888"),),
    r"set certFile and keyFile": (one_client,),
    r"set nodeCacheCapable: true": (of_entry(nodeCacheCapable=True),),
    r"make it a second longer, so that .*": (a_second_longer,),
    r"set ignorable: false": (of_entry(ignorable=False),),
    r"set ignorable: true; .*": (of_entry(ignorable=True),),
    # profiles
    r"disable (\w+) under plugins\.multiPoint(, and remove it from each `enabled`)?": (disabled,),
    r"enable it, or use mode offload with that rule enabled": (not_disabled, offloaded),
    r"enable rejectedPods\.nominateElsewhere, or set percentageOfNodesToScore: 100": (
        of_settings("rejectedPods.nominateElsewhere", value=True),
        of_file(percentageOfNodesToScore=100),
    ),
    r"(set \d+|remove it): rejectedPods\.nominateElsewhere finds nodes outside of the sample": (percentage,),
    r"(set \d+|remove it): rejectedPods\.nominateElsewhere enabled too finds .*": (percentage_and_elsewhere,),
    r"set it to 2, and add the profile of `extender config generate` for .*": (recommended,),
    # scores
    r"use the same for both": (
        lambda one, finding, match: (strategy if "scoringStrategy" in finding.problem else plain)(one, finding, match),
    ),
    r"set answers\.scoringStrategy to the nearer of LeastAllocated and MostAllocated, or to Ignored": (
        of_settings("answers.scoringStrategy", "Ignored"),
    ),
    r"set answers\.scoringStrategy: Ignored, unless the difference is small": (
        of_settings("answers.scoringStrategy", "Ignored"),
    ),
    r"set (answers\.scores: .*)": (written_settings,),
    r"set answers\.scores\.others: \[(\w+)\], so that .*": (
        lambda one, _finding, match: one.set("answers.scores.others", [match[1]]),
    ),
    r"set answers\.names: shortlist, if they matter": (of_settings("answers.names", "shortlist"),),
    r"set (rules\..*) of the extender, and restart it": (written_settings,),
    r"unless the extender has it already, set (rules\..*) of the extender, and restart it": (read_and_written,),
    # settings of the extender alone
    r"set server\.tls with a clientCAFile and clients, or listen on loopback": (
        of_settings("server.tls", TLS["tls"] | {"clients": {"scheduler": ["a"]}}),
        of_settings("server.bindAddress", "127.0.0.1:8888"),
    ),
    r"name them in server\.tls\.clients: scheduler, metrics and admin": (
        of_settings("server.tls.clients", {"scheduler": ["a"], "metrics": ["b"], "admin": ["c"]}),
    ),
    r"set it to true; false is for measurements only": (of_settings("assumedPods.enabled", value=True),),
}


def followed(one: SetUp, most: int = 8) -> Iterator[SetUp]:
    """The set-ups in which all remedies are applied in turn, the first finding's first, by each choice of the first one."""
    for changed in one.without(one.findings()[0]):
        now = changed
        for _ in range(most):
            if not (found := now.findings()):
                break
            now = now.without(found[0])[0]
        yield now
