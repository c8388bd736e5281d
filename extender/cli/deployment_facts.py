"""What `doctor` reads of what runs beside the service: its replicas, the schedulers, the admission policy, other extenders."""

import socket
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final
from urllib.parse import urlsplit

import orjson

from extender.cli.kubectl import NAMESPACES
from extender.cli.policy_facts import DENIED
from extender.doctor.facts import LOCAL, Deployment
from extender.kube.errors import KubeError, NotFound
from extender.kube.listing import read_list
from extender.kube.session import Connection
from extender.model.policies import JsonObject
from extender.wire.scheduler_config import Extender

_COMPONENT: Final = "app.kubernetes.io/component"
_OURS: Final = f"app.kubernetes.io/name=placement-extender,{_COMPONENT} in (extender,scheduler)"
_FIRST_SCHEDULER: Final = ("kube-system", "component=kube-scheduler")  # as kubeadm labels it
_SCHEDULER: Final = "kube-scheduler"
_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
_GUARD: Final = "placement-extender"
_PATIENCE: Final = 3.0  # seconds for a connection


async def read_deployment(connection: Connection, namespace: str) -> Deployment:
    """The replicas and the schedulers. Raises KubeError.

    ``namespace``: the namespace of the extender. If it is empty, the only namespace of deploy/ that has pods of the extender.
    """
    # Each list of pods is read once. Pods that run are counted. The tags of all pods are compared.
    # Pods in several namespaces of deploy/ are several installations: without a name none of them is counted as the asked one.
    names = [namespace] if namespace else NAMESPACES
    of_all = {name: await _pods(connection, name, _OURS) for name in names}
    by_namespace = {
        name: extenders
        for name, pods in of_all.items()
        if (extenders := [pod for pod in pods if _is_running(pod) and _is_extender(pod)])
    }
    pods = next(iter(by_namespace.values())) if len(by_namespace) == 1 else []
    beside = sum(any(container.get("name") == _SCHEDULER for container in _containers(pod)) for pod in pods)
    first = await _pods(connection, *_FIRST_SCHEDULER)
    # Without pods of an overlay there is nothing that its policy would limit.
    guard = await _guard(connection) if by_namespace else ""
    tags = _scheduler_tags([*chain.from_iterable(of_all.values()), *first])
    return Deployment(len(pods) - beside, beside, sum(map(_is_running, first)), guard, tags)


async def _pods(connection: Connection, namespace: str, labels: str) -> list[JsonObject]:
    return await _listed(connection, f"/api/v1/namespaces/{namespace}/pods", labelSelector=labels) or []


def _is_extender(pod: JsonObject) -> bool:
    return (pod["metadata"].get("labels") or {}).get(_COMPONENT) == "extender"


def _is_running(pod: JsonObject) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")


def _scheduler_tags(pods: Iterable[JsonObject]) -> dict[str, tuple[str, ...]]:
    """The pods by tag of kube-scheduler's image, also pods that never started. An image without a tag is left out."""
    tags: dict[str, set[str]] = {}
    for pod in pods:
        for container in _containers(pod):
            # Example: registry.example:5000/kube-scheduler:v1.36.0@sha256:...
            _, _, tag = str(container.get("image")).partition("@")[0].rpartition("/")[2].partition(":")
            if container.get("name") == _SCHEDULER and tag:
                tags.setdefault(tag, set()).add(f"{pod['metadata'].get('namespace')}/{pod['metadata']['name']}")
    return {tag: tuple(sorted(names)) for tag, names in tags.items()}


def _containers(pod: JsonObject) -> Iterable[JsonObject]:
    return (pod.get("spec") or {}).get("containers") or ()


async def _guard(connection: Connection) -> str:
    """What is missing of the admission policy of deploy/base/admission.yaml. An overlay may append a suffix to its name."""
    policies = await _listed(connection, f"{_ADMISSION}ies")
    bindings = await _listed(connection, f"{_ADMISSION}ybindings")
    if policies is None or bindings is None:
        return ""
    # A policy without a binding that denies has no effect, so both are needed.
    ours = {policy["metadata"]["name"] for policy in policies if _limits_pods(policy)}
    if not ours:
        return "policy"
    bound = {str((binding.get("spec") or {}).get("policyName")) for binding in bindings if _denies(binding)}
    return "" if ours & bound else "binding"


def _limits_pods(policy: JsonObject) -> bool:
    rules = ((policy.get("spec") or {}).get("matchConstraints") or {}).get("resourceRules") or ()
    return policy["metadata"]["name"].startswith(_GUARD) and any("pods" in rule.get("resources", ()) for rule in rules)


def _denies(binding: JsonObject) -> bool:
    return "Deny" in ((binding.get("spec") or {}).get("validationActions") or ())


async def _listed(connection: Connection, path: str, **query: str) -> list[JsonObject] | None:
    """The items; None where they may not be read, or the API server does not serve them."""
    try:
        return [orjson.loads(item) for item in await read_list(connection, path, **query)]
    except NotFound:
        return None
    except KubeError as error:
        if error.status in DENIED:
            return None
        raise


def unserved(entries: Sequence[Extender], ours: Extender | None, *, is_here: bool) -> dict[str, str]:
    """By URL why nothing listens there, of the scheduler's other extenders, as seen from this machine.

    ``is_here``: the scheduler runs on this machine, so its loopback addresses can be tried.
    """
    problems: dict[str, str] = {}
    for entry in entries:
        try:
            address = urlsplit(entry.url_prefix)
            if entry is ours or (address.hostname in LOCAL and not is_here):
                continue
            port = address.port or (443 if address.scheme == "https" else 80)
            socket.create_connection((address.hostname or "", port), _PATIENCE).close()
        except (OSError, ValueError) as error:
            problems[entry.url_prefix] = getattr(error, "strerror", None) or str(error)
    return problems
