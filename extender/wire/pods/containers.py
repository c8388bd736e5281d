"""Whether the containers of a new pod are valid: their names, images, host ports, and amounts of resources.

As ``validateContainers`` and ``validateResourceRequirements`` of Kubernetes 1.36, for a completed pod. Fields that
scheduling does not read, such as probes and volume mounts, are not checked. O(containers × amounts).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from extender.model.constraints.labels import is_dns_label, is_label_key
from extender.model.policies import JsonObject
from extender.model.resources import (
    CPU,
    EPHEMERAL_STORAGE,
    HUGE_PAGES,
    MEMORY,
    QuantityError,
    is_of_pod_level,
    parse_quantity,
)
from extender.wire.policies.field_errors import ErrorType, Problems

_MOST_PORT: Final = 65535
_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_RESTART_POLICIES: Final = ("Always", "Never", "OnFailure")
_DNS_LABEL: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an "
    "alphanumeric character"
)
_OF_CONTAINERS: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)
_OF_QUOTAS: Final = "requests."
_LONGEST_PREFIX: Final = 253 - len(_OF_QUOTAS)  # of an extended resource, because quotas put their own prefix before it


def check_containers(problems: Problems, spec: JsonObject) -> None:
    """Adds every error of containers and init containers. Their names must all differ."""
    names: set[str] = set()
    ports: set[str] = set()
    containers = list(problems.objects(spec.get("containers"), "spec.containers"))
    if not containers:
        problems.required("spec.containers", "")
    for container, at in containers:
        _check_container(problems, container, at, names, ports)
        if spec.get("hostNetwork") is True:
            _check_ports_of_host(problems, container, at)
    for container, at in problems.objects(spec.get("initContainers"), "spec.initContainers"):
        # Init containers run one after the other, so ports may repeat.
        _check_container(problems, container, at, names, set())
    _check_requirements(problems, {"limits": spec.get("overhead")}, "spec.overhead", is_of_pod=False)
    resources = problems.read_object(spec.get("resources"), "spec.resources")
    _check_requirements(problems, resources, "spec.resources", is_of_pod=True)


def _check_container(problems: Problems, container: JsonObject, at: str, names: set[str], ports: set[str]) -> None:
    name = problems.read_text(container.get("name"), f"{at}.name")
    if not name:
        problems.required(f"{at}.name", "")
    elif not is_dns_label(name):
        problems.invalid(f"{at}.name", name, _DNS_LABEL)
    if name and name in names:
        problems.add(ErrorType.DUPLICATE, f"{at}.name", "", name)
    names.add(name)
    problems.read_choice(container.get("restartPolicy"), f"{at}.restartPolicy", _RESTART_POLICIES)
    resources = problems.read_object(container.get("resources"), f"{at}.resources")
    _check_requirements(problems, resources, f"{at}.resources", is_of_pod=False)
    for port, below in problems.objects(container.get("ports"), f"{at}.ports"):
        _check_port(problems, port, below, ports)


def _check_port(problems: Problems, port: JsonObject, at: str, taken: set[str]) -> None:
    if not port.get("containerPort"):
        problems.required(f"{at}.containerPort", "")
    else:
        problems.read_number(port["containerPort"], f"{at}.containerPort", 1, _MOST_PORT)
    protocol = problems.read_choice(port.get("protocol"), f"{at}.protocol", _PROTOCOLS)
    address = problems.read_text(port.get("hostIP"), f"{at}.hostIP")
    # 0 is the zero value of Go and means no host port.
    number = problems.read_number(port.get("hostPort") or None, f"{at}.hostPort", 1, _MOST_PORT)
    if number is not None:
        text = f"{protocol}/{address}/{number}"
        if text in taken:
            problems.add(ErrorType.DUPLICATE, f"{at}.hostPort", "", text)
        taken.add(text)


def _check_ports_of_host(problems: Problems, container: JsonObject, at: str) -> None:
    for port, below in problems.objects(container.get("ports"), f"{at}.ports"):
        if port.get("hostPort") != port.get("containerPort"):
            text = "must match `containerPort` when `hostNetwork` is true"
            problems.invalid(f"{below}.hostPort", port.get("hostPort"), text)


def _check_requirements(problems: Problems, resources: JsonObject, at: str, *, is_of_pod: bool) -> None:
    """Limits and requests.

    They must be equal for resources without overcommitment: huge pages and extended resources.
    """
    names = dict.fromkeys((*_present(resources.get("limits")), *_present(resources.get("requests"))))
    wrong_names = {name: problem for name in names if (problem := _name_problem(name, is_of_pod=is_of_pod))}
    limits = _check_amounts(problems, resources.get("limits"), f"{at}.limits", wrong_names)
    requests = _check_amounts(problems, resources.get("requests"), f"{at}.requests", wrong_names)
    # 1. Over-committed resources (CPU, memory, ephemeral storage): a request may be below its limit.
    # 2. Huge pages and extended resources with a limit: both must be equal.
    # 3. Huge pages and extended resources without a limit: an error.
    for name, amount in requests.items():
        requested = resources["requests"][name]
        if name in limits and amount > limits[name] and _is_overcommitted(name):
            text = f"must be less than or equal to {name} limit of {resources['limits'][name]}"
            problems.invalid(f"{at}.requests", requested, text)
        elif name in limits and amount != limits[name] and not _is_overcommitted(name):
            problems.invalid(
                f"{at}.requests", requested, f"must be equal to {name} limit of {resources['limits'][name]}"
            )
        elif name not in _present(resources.get("limits")) and not _is_overcommitted(name):
            problems.required(f"{at}.limits", "Limit must be set for non overcommitable resources")
    if any(name.startswith(HUGE_PAGES) for name in names) and not names.keys() & {CPU, MEMORY}:
        problems.forbidden(at, "HugePages require cpu or memory")


def _check_amounts(problems: Problems, value: Any, path: str, wrong_names: Mapping[str, str]) -> dict[str, int]:
    """The amounts that are quantities, in thousandths, so that fractions of whole units show."""
    amounts: dict[str, int] = {}
    for name, text in problems.read_object(value, path).items():
        at = f"{path}[{name}]"
        if name in wrong_names:
            problems.invalid(at, name, wrong_names[name])
        try:
            amount = parse_quantity(str(text), milli=True)
        except QuantityError:
            # The API server cannot decode such a pod, so it checks nothing else of it.
            problems.add(ErrorType.TYPE_INVALID, at, "must be a quantity", text)
            continue
        if amount < 0:
            problems.invalid(at, text, "must be greater than or equal to 0")
        if amount % 1000 and not _is_native(name):
            problems.invalid(at, text, "must be an integer")
        amounts[name] = amount
    return amounts


def _name_problem(name: str, *, is_of_pod: bool) -> str:
    """The problem of a resource's name; empty if it is valid."""
    if not is_label_key(name):
        return "name part must consist of alphanumeric characters, '-', '_' or '.'"
    if is_of_pod:
        return "" if is_of_pod_level(name) else "is none of cpu, memory and hugepages-*"
    if "/" not in name:
        is_known = name in _OF_CONTAINERS or name.startswith(HUGE_PAGES)
        return "" if is_known else "must be a standard resource for containers"
    if not _is_native(name) and (name.startswith(_OF_QUOTAS) or name.index("/") > _LONGEST_PREFIX):
        return "doesn't follow extended resource name standard"
    return ""


def _is_native(name: str) -> bool:
    # Anywhere in the name, as in Go's IsNativeResource: `requests.kubernetes.io/x` is native too.
    return "/" not in name or "kubernetes.io/" in name


def _is_overcommitted(name: str) -> bool:
    """Whether limits may exceed requests for the resource."""
    return _is_native(name) and not name.startswith(HUGE_PAGES)


def _present(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
