"""Scenario files: a cluster, steps in time, settings, and what is expected of them, read strictly into structs.

Every field is named in the error when it is unknown or of the wrong type (`steps[2].arrive.count: expected ...`).
Nothing is played here; `scenario/play.py` does that. Called by the command line and by tests.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta, Struct

from extender.model.documents import DocumentError, read_document, without_nulls
from extender.model.units import ByteSize, Duration
from extender.simulator.scenario.faults import Condition, Fault, read_conditions, read_faults, read_part

# A number, or a least and a most from which the seed draws. Their limits are checked by hand: msgspec 0.22 crashes
# on a union of a constrained number and a tuple.
Amount: TypeAlias = int | tuple[int, int]
_AMOUNTS: Final = ("count", "placed", "pending")
Labels: TypeAlias = dict[str, str]


class _Part(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What all parts of a scenario have in common."""

    def __post_init__(self) -> None:
        """Refuse amounts that cannot be drawn."""
        for name in _AMOUNTS:
            amount = getattr(self, name, None)
            least, most = amount if isinstance(amount, tuple) else (amount or 0, amount or 0)
            if not 0 <= least <= most:
                raise ValueError(f"{name}: expected a number, or the least and the most, got {amount}")


class Template(_Part, frozen=True):
    """What a pod looks like. `{i}` in a text is the pod's number, `{v}` that number modulo `variants`.

    In `spec`, `{repeat: N, each: X}` stands for a list of N times X, in which `{n}` is the place in the list.
    """

    labels: Labels = {}
    annotations: Labels = {}
    cpu: str = "100m"
    memory: str = "64Mi"
    variants: Annotated[int, Meta(ge=1)] = 1
    spec: dict[str, Any] = {}


class NodeGroup(_Part, frozen=True):
    """Nodes of one make, spread over `zones` zones in turn."""

    count: Amount = 1
    name: str = "node-{i}"
    zones: Annotated[int, Meta(ge=1)] = 3
    zone: str = "zone-{z}"
    labels: Labels = {}
    taints: tuple[dict[str, str], ...] = ()
    cpu: str = "4"
    memory: str = "32Gi"
    pods: int = 110


class NamespaceGroup(_Part, frozen=True, kw_only=True):
    """Namespaces with the same labels."""

    count: Amount = 1
    name: str
    labels: Labels = {}


class Running(_Part, frozen=True):
    """Pods that run before the scenario starts, dealt to namespaces and nodes in turn."""

    template: str
    count: Amount
    name: str = ""
    namespaces: str = "*"
    nodes: str = "*"


class Cluster(_Part, frozen=True):
    """What is there at the start: ordinary Kubernetes YAML (files or folders beside the scenario), and groups."""

    files: tuple[str, ...] = ()
    nodes: tuple[NodeGroup, ...] = ()
    namespaces: tuple[NamespaceGroup, ...] = ()
    running: tuple[Running, ...] = ()


class Arrive(_Part, frozen=True, kw_only=True):
    """Pods are created: of one template, or drawn from a `mix` of them by weight; `rate` in pods per second."""

    template: str = ""
    mix: dict[str, int] = {}
    count: Amount
    namespaces: str = "*"
    name: str = ""
    rate: Annotated[float, Meta(gt=0)] | None = None
    background: bool = False

    def __post_init__(self) -> None:
        """Refuse a step that does not say what arrives, or says it twice."""
        _Part.__post_init__(self)
        if bool(self.template) == bool(self.mix):
            raise ValueError("template: expected either a template or a mix")


class RelabelNamespace(_Part, frozen=True):
    """Labels of namespaces change; a label set to "" is taken away."""

    namespaces: str
    labels: Labels


class ChangePods(_Part, frozen=True):
    """Labels or annotations of pods change; one set to "" is taken away. `count` absent: of all that are selected."""

    namespaces: str = "*"
    selector: Labels = {}
    count: Amount | None = None
    pending: bool | None = None
    labels: Labels = {}
    annotations: Labels = {}


class DeletePods(_Part, frozen=True):
    """Pods are deleted, drawn by the seed; `count` absent: all that are selected."""

    namespaces: str = "*"
    selector: Labels = {}
    count: Amount | None = None
    grace: Duration | None = None


class ChangeNodes(_Part, frozen=True):
    """Nodes are cordoned, uncordoned, relabelled or deleted; `count` absent: all whose name fits."""

    action: Literal["cordon", "uncordon", "relabel", "delete"]
    nodes: str
    count: Amount | None = None
    labels: Labels = {}


class Settle(_Part, frozen=True):
    """Wait until the queue is quiet."""

    timeout: Duration = Duration(60)
    calm: Duration = Duration(0.3)  # how long nothing must have happened


class Pause(_Part, frozen=True):
    """Let time pass, whatever happens in it."""

    time: Duration


class Expect(_Part, frozen=True):
    """What must hold at this point; an absent number may be anything."""

    placed: Amount | None = None
    pending: Amount | None = None


@dataclass(frozen=True, slots=True)
class ChangeFaults:
    """From now on the API server has these faults and no others; one-time faults among them happen one after the other."""

    faults: tuple[Fault, ...]


Action: TypeAlias = (
    Arrive
    | RelabelNamespace
    | ChangePods
    | DeletePods
    | NodeGroup
    | ChangeNodes
    | Settle
    | Pause
    | Expect
    | ChangeFaults
)
ACTIONS: Final[dict[str, type[Any]]] = {
    "arrive": Arrive,
    "relabelNamespace": RelabelNamespace,
    "changePods": ChangePods,
    "deletePods": DeletePods,
    "addNodes": NodeGroup,
    "changeNodes": ChangeNodes,
    "settle": Settle,
    "pause": Pause,
    "expect": Expect,
    "faults": ChangeFaults,
}


@dataclass(frozen=True, slots=True)
class Step:
    """One step: its path in the file for messages, what is said about it there, and what to do."""

    path: str
    title: str
    action: Action


BIND_PATH: Final = "/bind"  # where a scheduler that lets us bind asks; off in the extender unless it is set


class SchedulerPart(_Part, frozen=True):
    """How the scheduling loop behaves, in the words of KubeSchedulerConfiguration where it has them."""

    percentage_of_nodes_to_score: Annotated[int, Meta(ge=0, le=100)] = 0
    pod_initial_backoff: Duration = Duration(1)
    pod_max_backoff: Duration = Duration(10)
    bind_delay: tuple[Duration, Duration] = (Duration(0), Duration(0))
    cache_delay: Duration = Duration(0)
    node_cache_capable: bool = True
    prioritize: bool = True
    bind: bool = False
    preemption: Literal["none", "sync", "async"] = "none"
    offers_bare_candidates: bool = False  # as from kubernetes#135486 on
    weight: Annotated[int, Meta(ge=1)] = 1
    http_timeout: Duration = Duration(5)
    ignorable: bool = False


class PlanePart(_Part, frozen=True):
    """How the embedded API server behaves."""

    history: Annotated[int, Meta(ge=1)] = 20_000
    slow_after: Annotated[int, Meta(ge=1)] = 10_000
    bookmark_every: Duration = Duration(1)
    kubelet_delay: Duration = Duration(0)
    write_delay: Duration = Duration(0)  # for every write over HTTP: an API server that is slow


class CostComparison(_Part, frozen=True, kw_only=True):
    """A second run, which leaves out the pods of some namespaces, and how much worse off all others may be with them.

    `max_slowdown` is of the 99th percentile of the processor time from question to answer (filter, the other pods),
    `max_growth` of resident memory.
    """

    without: str
    max_slowdown: Annotated[float, Meta(gt=0)] | None = None
    max_growth: ByteSize | None = None


class Scenario(_Part, frozen=True, kw_only=True):
    """A whole scenario. Templates and steps are left raw here and read by `parse_scenario`, which knows their forms."""

    api_version: Literal["placement.extender.dev/v1alpha1"]
    kind: Literal["Scenario"]
    name: str
    description: str = ""
    seed: int = 0
    lag: Duration = Duration(0.25)  # how long a change from outside may be on its way before an answer must know it
    cluster: Cluster = Cluster()
    templates: dict[str, dict[str, Any]] = {}
    scheduler: SchedulerPart = SchedulerPart()
    plane: PlanePart = PlanePart()
    extender: dict[str, Any] = {}
    faults: tuple[dict[str, Any], ...] = ()  # those of the API server from the start until a step changes them
    steps: tuple[dict[str, Any], ...]
    forever: tuple[dict[str, Any], ...] = ()
    comparison: CostComparison | None = None


@dataclass(frozen=True, slots=True)
class Play:
    """A scenario that has been checked: its settings, its templates, its faults, and its steps in their forms."""

    scenario: Scenario
    templates: dict[str, Template]
    steps: tuple[Step, ...]
    forever: tuple[Step, ...]
    faults: tuple[Condition, ...] = ()


def parse_scenario(document: object) -> Play:
    """Read a parsed YAML document. Raises DocumentError with every problem and its path."""
    cleaned = without_nulls(_with_bare_steps(document))
    scenario = read_document(cleaned, Scenario, required=("apiVersion", "kind", "name", "steps"))
    problems: list[str] = []
    templates = {
        name: read_part(raw, Template, f"templates.{name}", problems) for name, raw in scenario.templates.items()
    }
    steps = _read_steps(scenario.steps, "steps", problems)
    forever = _read_steps(scenario.forever, "forever", problems)
    faults = read_conditions(scenario.faults, "faults", problems)
    problems += _unknown_templates(scenario, (*steps, *forever))
    if problems:
        raise DocumentError(problems)
    known = {name: template for name, template in templates.items() if template is not None}
    return Play(scenario, known, steps, forever, faults)


def _with_bare_steps(document: object) -> object:
    """`- settle:` without anything is a step with all its defaults, not a field left out; `- cutLine:` likewise."""
    if not isinstance(document, dict):
        return document
    filled = dict(document)
    for place in ("steps", "forever", "faults"):
        if isinstance(filled.get(place), list):
            filled[place] = [_filled(step) for step in filled[place]]
    return filled


def _filled(step: object) -> object:
    if not isinstance(step, dict):
        return step
    filled = {verb: {} if body is None else body for verb, body in step.items()}
    if isinstance(filled.get("faults"), list):
        filled["faults"] = [_filled(fault) for fault in filled["faults"]]
    return filled


def _read_steps(raw: tuple[dict[str, Any], ...], place: str, problems: list[str]) -> tuple[Step, ...]:
    steps: list[Step] = []
    for number, document in enumerate(raw):
        path = f"{place}[{number}]"
        verbs = [name for name in document if name != "title"]
        if len(verbs) != 1 or verbs[0] not in ACTIONS:
            problems.append(f"{path}: expected one of {', '.join(ACTIONS)}, got {', '.join(verbs) or 'nothing'}")
            continue
        verb = verbs[0]
        action = _read_action(verb, document[verb], f"{path}.{verb}", problems)
        if action is not None:
            steps.append(Step(f"{path}.{verb}", str(document.get("title", "")), action))
    return tuple(steps)


def _read_action(verb: str, document: object, path: str, problems: list[str]) -> Action | None:
    if verb == "faults":
        return ChangeFaults(read_faults(document, path, problems))
    action: Action | None = read_part(document, ACTIONS[verb], path, problems)
    return action


def _unknown_templates(scenario: Scenario, steps: tuple[Step, ...]) -> list[str]:
    used = [(f"cluster.running[{i}].template", run.template) for i, run in enumerate(scenario.cluster.running)]
    for step in steps:
        if isinstance(step.action, Arrive):
            used += [(f"{step.path}.template", name) for name in [step.action.template, *step.action.mix] if name]
    return [f'{path}: no template is called "{name}"' for path, name in used if name not in scenario.templates]
