"""Whether the containers of a new pod are valid: their names, images, host ports, and amounts of resources.

As ``validateContainers`` and ``validateResourceRequirements`` of Kubernetes 1.36, for a pod that is completed. What scheduling does
not read, such as probes and volume mounts, is not checked. O(containers × amounts).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from extender.model.constraints.labels import is_dns_label, is_label_key
from extender.model.policies import JsonObject
from extender.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, QuantityError, parse_quantity
from extender.wire.pods.completion import HUGE_PAGES
from extender.wire.policies.field_errors import ErrorType, Problems

_MOST_PORT: Final = 65535
_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_RESTART_POLICIES: Final = ("Always", "Never", "OnFailure")
_DNS_LABEL: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an "
    "alphanumeric character"
)
_OF_CONTAINERS: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)
_OF_PODS: Final = (CPU, MEMORY)
_OF_QUOTAS: Final = "requests."
_LONGEST_PREFIX: Final = 253 - len(_OF_QUOTAS)  # of an extended resource: a quota puts the other before it


def check_containers(found: Problems, spec: JsonObject) -> None:
    """Every error of containers and init containers. The names of both are different."""
    names: set[str] = set()
    ports: set[str] = set()
    containers = list(found.objects(spec.get("containers"), "spec.containers"))
    if not containers:
        found.required("spec.containers", "")
    for container, at in containers:
        _check_container(found, container, at, names, ports)
        if spec.get("hostNetwork") is True:
            _check_ports_of_host(found, container, at)
    for container, at in found.objects(spec.get("initContainers"), "spec.initContainers"):
        _check_container(found, container, at, names, set())  # they run one after the other
    _check_requirements(found, {"limits": spec.get("overhead")}, "spec.overhead", is_of_pod=False)
    resources = found.read_object(spec.get("resources"), "spec.resources")
    _check_requirements(found, resources, "spec.resources", is_of_pod=True)


def _check_container(found: Problems, container: JsonObject, at: str, names: set[str], ports: set[str]) -> None:
    name = found.read_text(container.get("name"), f"{at}.name")
    if not name:
        found.required(f"{at}.name", "")
    elif not is_dns_label(name):
        found.invalid(f"{at}.name", name, _DNS_LABEL)
    if name and name in names:
        found.add(ErrorType.DUPLICATE, f"{at}.name", "", name)
    names.add(name)
    found.read_choice(container.get("restartPolicy"), f"{at}.restartPolicy", _RESTART_POLICIES)
    resources = found.read_object(container.get("resources"), f"{at}.resources")
    _check_requirements(found, resources, f"{at}.resources", is_of_pod=False)
    for port, below in found.objects(container.get("ports"), f"{at}.ports"):
        _check_port(found, port, below, ports)


def _check_port(found: Problems, port: JsonObject, at: str, taken: set[str]) -> None:
    if not port.get("containerPort"):
        found.required(f"{at}.containerPort", "")
    else:
        found.read_number(port["containerPort"], f"{at}.containerPort", 1, _MOST_PORT)
    protocol = found.read_choice(port.get("protocol"), f"{at}.protocol", _PROTOCOLS)
    address = found.read_text(port.get("hostIP"), f"{at}.hostIP")
    number = found.read_number(port.get("hostPort") or None, f"{at}.hostPort", 1, _MOST_PORT)
    if number is not None:
        text = f"{protocol}/{address}/{number}"
        if text in taken:
            found.add(ErrorType.DUPLICATE, f"{at}.hostPort", "", text)
        taken.add(text)


def _check_ports_of_host(found: Problems, container: JsonObject, at: str) -> None:
    for port, below in found.objects(container.get("ports"), f"{at}.ports"):
        if port.get("hostPort") != port.get("containerPort"):
            text = "must match `containerPort` when `hostNetwork` is true"
            found.invalid(f"{below}.hostPort", port.get("hostPort"), text)


def _check_requirements(found: Problems, resources: JsonObject, at: str, *, is_of_pod: bool) -> None:
    """Limits and requests, which are equal for what cannot be overcommitted: huge pages and extended resources."""
    names = dict.fromkeys((*_present(resources.get("limits")), *_present(resources.get("requests"))))
    problems = {name: problem for name in names if (problem := _name_problem(name, is_of_pod=is_of_pod))}
    limits = _check_amounts(found, resources.get("limits"), f"{at}.limits", problems)
    requests = _check_amounts(found, resources.get("requests"), f"{at}.requests", problems)
    for name, amount in requests.items():
        given = resources["requests"][name]
        if name in limits and amount > limits[name] and _is_overcommitted(name):
            text = f"must be less than or equal to {name} limit of {resources['limits'][name]}"
            found.invalid(f"{at}.requests", given, text)
        elif name in limits and amount != limits[name] and not _is_overcommitted(name):
            found.invalid(f"{at}.requests", given, f"must be equal to {name} limit of {resources['limits'][name]}")
        elif name not in _present(resources.get("limits")) and not _is_overcommitted(name):
            found.required(f"{at}.limits", "Limit must be set for non overcommitable resources")
    if any(name.startswith(HUGE_PAGES) for name in names) and not names.keys() & {CPU, MEMORY}:
        found.forbidden(at, "HugePages require cpu or memory")


def _check_amounts(found: Problems, value: Any, path: str, problems: Mapping[str, str]) -> dict[str, int]:
    """The amounts that are quantities, in thousandths, so that parts of what is counted in whole units show."""
    amounts: dict[str, int] = {}
    for name, text in found.read_object(value, path).items():
        at = f"{path}[{name}]"
        if name in problems:
            found.invalid(at, name, problems[name])
        try:
            amount = parse_quantity(str(text), milli=True)
        except QuantityError:
            # The API server cannot decode such a pod, so it checks no more of it.
            found.add(ErrorType.TYPE_INVALID, at, "must be a quantity", text)
            continue
        if amount < 0:
            found.invalid(at, text, "must be greater than or equal to 0")
        if amount % 1000 and not _is_native(name):
            found.invalid(at, text, "must be an integer")
        amounts[name] = amount
    return amounts


def _name_problem(name: str, *, is_of_pod: bool) -> str:
    """What is wrong with the name of a resource; empty where it is right."""
    if not is_label_key(name):
        return "name part must consist of alphanumeric characters, '-', '_' or '.'"
    if is_of_pod:
        return "" if name in _OF_PODS or name.startswith(HUGE_PAGES) else "is none of cpu, memory and hugepages-*"
    if "/" not in name:
        is_known = name in _OF_CONTAINERS or name.startswith(HUGE_PAGES)
        return "" if is_known else "must be a standard resource for containers"
    if not _is_native(name) and (name.startswith(_OF_QUOTAS) or name.index("/") > _LONGEST_PREFIX):
        return "doesn't follow extended resource name standard"
    return ""


def _is_native(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


def _is_overcommitted(name: str) -> bool:
    """Whether more of the resource may be limited than requested."""
    return _is_native(name) and not name.startswith(HUGE_PAGES)


def _present(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
