"""The policies in config/policies are ones to copy: accepted without a warning, and explained field by field."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from deploy.policies.tables import README, as_text
from extender.settings.configuration import Settings
from extender.simulator.json_objects import JsonObject
from extender.wire.policies.policies_v1 import read_policy
from tests.deploy.policies.examples import TO_COPY, to_copy
from tests.programs import tool
from tests.simulator.plain import namespace, node, pod
from tests.verbs.admit.reviewing import review, verb


def rows() -> set[str]:
    """What stands in the first column of the tables of the README."""
    cells = re.findall(r"^\| (`.+?) \|", README.read_text("utf-8"), re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


@pytest.mark.parametrize("name", TO_COPY)
def test_a_policy_is_accepted_without_a_warning_beside_all_others(name: str) -> None:
    found = verb(*(read_policy(to_copy(each)) for each in TO_COPY))
    response = found.decide(review(to_copy(name)))["response"]
    assert (response["allowed"], response.get("warnings")) == (True, None)


def test_the_readme_explains_every_file() -> None:
    assert len(TO_COPY) == 10
    assert {name for name in rows() if name.endswith(".yaml")} == set(TO_COPY)


def test_the_readme_explains_every_field_and_names_its_default() -> None:
    assert README.read_text("utf-8") == as_text(README.read_text("utf-8")), "run python -m deploy.policies"
    assert {"podSelector", "spec.spread.after", "spec.release.topology"} <= rows()


def test_a_field_without_a_row_gets_one_and_a_row_without_a_field_goes() -> None:
    lines = README.read_text("utf-8").splitlines(keepends=True)
    short = "".join(line for line in lines if not line.startswith(("| `spec.spread.after`", "| `priority`")))
    long = short.replace(
        "| `spec.spread.topologyKey`", "| `spec.spread.gone` | a field | |\n| `spec.spread.topologyKey`"
    )
    written = as_text(long)
    assert "| `priority` | Higher goes first; then the cluster-wide kind, then the name" in written
    assert (
        "| `spec.spread.after` | For how long no node takes pods then; 5m if absent, up to 32 characters | |\n"
        in written
    )
    assert "spec.spread.gone" not in written


MOVING = README.parents[1] / "how-to" / "move-from-kupid.md"
ETCD = "pool.worker.gardener.cloud/dedicated-for"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


CLUSTER_OF_KUPID = [
    node("etcd-0", labels={ETCD: "etcd"}),
    namespace("shoot--a"),
    pod("etcd-main-0", "shoot--a", labels={"app": "etcd-statefulset"}),
]


def kupids_policy() -> JsonObject:
    """A policy of the form of kupid's chart, with what the API server and kubectl add."""
    head = {"apiVersion": "kupid.gardener.cloud/v1alpha1", "kind": "ClusterPodSchedulingPolicy"}
    terms = [{"matchExpressions": [{"key": ETCD, "operator": "In", "values": ["etcd"]}]}]
    return head | {
        "metadata": {
            "annotations": {LAST_APPLIED: json.dumps(head) + "\n"},
            "creationTimestamp": "2026-11-01T00:00:00Z",
            "generation": 1,
            "resourceVersion": "12",
            "uid": "6f0d",
            "name": "kupid-policy-etcd",
        },
        "spec": {
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
            },
            "namespaceSelector": {},
            "podSelector": {"matchLabels": {"app": "etcd-statefulset"}},
            "tolerations": [{"effect": "NoExecute", "key": ETCD, "operator": "Equal", "value": "etcd"}],
        },
    }


class _AsKubectl(yaml.SafeDumper):
    """Texts with a line break are blocks, as kubectl writes them."""


_AsKubectl.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def follow_the_page(folder: Path, environment: Mapping[str, str], **programs: str) -> str:
    """What the page's commands print, run as they stand in a folder, with `extender` and these programs as shell scripts."""
    (settings,) = re.findall(r"```yaml\n(.*?)```", MOVING.read_text("utf-8"), re.DOTALL)
    head = f"apiVersion: {Settings().api_version}\nkind: {Settings().kind}\n"
    (folder / "extender.yaml").write_text(head + settings.strip(), "utf-8")
    (folder / "bin").mkdir()
    for name, text in {"extender": f'exec {sys.executable} -m extender "$@"', **programs}.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}\n", "utf-8")
        (folder / "bin" / name).chmod(0o755)
    (page,) = re.findall(r"commands: begin -->(.*)<!-- commands: end", MOVING.read_text("utf-8"), re.DOTALL)
    commands = "\n".join(re.findall(r"^ {7}(.*)$", page, re.MULTILINE))
    done = subprocess.run(
        [tool("bash"), "-euo", "pipefail", "-c", commands],
        cwd=folder,
        env={**os.environ, **environment, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    before, after = re.findall(
        r"^--- before$.*?^1 object: 1 changed, 0 refused$", done.stdout, re.MULTILINE | re.DOTALL
    )
    assert before.replace(".kupid.gardener.cloud/", "/").split() == after.split(), "they do the same"
    return done.stdout


def test_kupids_policies_are_moved_by_the_commands_of_the_page_and_do_the_same(tmp_path: Path) -> None:
    """Kubectl is a stand-in that prints a policy and a cluster; tests/e2e/test_policy_crds.py has a real one."""
    policies = {"apiVersion": "v1", "kind": "List", "items": [kupids_policy()]}
    (tmp_path / "policies.out").write_text(yaml.dump(policies, Dumper=_AsKubectl), "utf-8")
    objects = {"kind": "List", "apiVersion": "v1", "items": CLUSTER_OF_KUPID}
    (tmp_path / "cluster.out").write_text(json.dumps(objects), "utf-8")
    cases = "create*) ;; *kupid*) cat policies.out ;; *) cat cluster.out ;;"
    follow_the_page(tmp_path, {}, kubectl=f'case "$*" in {cases} esac')
    (moved,) = yaml.safe_load((tmp_path / "policies.yaml").read_text("utf-8"))["items"]
    assert moved["apiVersion"] == "placement.extender.dev/v1alpha1"
    assert moved["metadata"] == {"annotations": None, "name": "kupid-policy-etcd"}
    assert moved["spec"] == kupids_policy()["spec"]
