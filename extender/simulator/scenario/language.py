"""Parses scenario files into structs: a cluster, settings, steps and expectations.

Strict: an unknown field or a wrong type is an error with its path (`steps[2].arrive.count: expected ...`).
`scenario/play.py` plays the result. Called by the command line and by tests.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta, Struct

from extender.model.documents import AtLeastOne, DocumentError, read_document, without_nulls
from extender.model.units import ByteSize, Duration
from extender.simulator.scenario.faults import Condition, Fault, read_conditions, read_faults, read_part

# A number, or a minimum and a maximum for a random number. The limits are checked in code, because msgspec 0.22 crashes on a
# union of a constrained number and a tuple.
Amount: TypeAlias = int | tuple[int, int]
_AMOUNTS: Final = (
    *("count", "groups", "size", "placed", "pending", "judged", "missed", "victims", "evictions", "broken", "worst"),
)
Labels: TypeAlias = dict[str, str]


class _Part(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The base of all parts of a scenario."""

    def __post_init__(self) -> None:
        """Rejects ranges that are negative or empty."""
        for name in _AMOUNTS:
            amount = getattr(self, name, None)
            least, most = amount if isinstance(amount, tuple) else (amount or 0, amount or 0)
            if not 0 <= least <= most:
                raise ValueError(f"{name}: expected a number, or minimum and maximum, got {amount}")


class Template(_Part, frozen=True):
    """A template of pods. `{i}` in a text is the pod's number, `{v}` that number modulo `variants`.

    In `spec`, `{repeat: N, each: X}` is a list of N times X, in which `{n}` is the index. A `controller` replaces its pods when
    they are deleted: a ReplicaSet at once, a StatefulSet under the same name once the pod has ended.
    """

    labels: Labels = {}
    annotations: Labels = {}
    cpu: str = "100m"
    memory: str = "64Mi"
    variants: AtLeastOne = 1
    controller: Literal["", "ReplicaSet", "StatefulSet"] = ""
    spec: dict[str, Any] = {}


class NodeGroup(_Part, frozen=True):
    """Equal nodes, distributed over `zones` zones."""

    count: Amount = 1
    name: str = "node-{i}"
    zones: AtLeastOne = 3
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
    """Pods that run at the start, distributed over namespaces and nodes."""

    template: str
    count: Amount
    name: str = ""
    namespaces: str = "*"
    nodes: str = "*"


class Cluster(_Part, frozen=True):
    """The objects at the start: Kubernetes YAML (files or folders relative to the scenario), and groups."""

    files: tuple[str, ...] = ()
    nodes: tuple[NodeGroup, ...] = ()
    namespaces: tuple[NamespaceGroup, ...] = ()
    running: tuple[Running, ...] = ()


class Arrive(_Part, frozen=True, kw_only=True):
    """Creates pods of one template, or of a weighted random `mix`; `rate` in pods per second."""

    template: str = ""
    mix: dict[str, int] = {}
    count: Amount
    namespaces: str = "*"
    name: str = ""
    rate: Annotated[float, Meta(gt=0)] | None = None
    background: bool = False

    def __post_init__(self) -> None:
        """Rejects a step with both or none of template and mix."""
        _Part.__post_init__(self)
        if bool(self.template) == bool(self.mix):
            raise ValueError("template: expected either a template or a mix")


class ArriveGroups(_Part, frozen=True, kw_only=True):
    """Creates groups of pods of one template, each with a label of its own and its size in an annotation."""

    template: str
    groups: Amount
    size: Amount
    namespaces: str = "*"
    label: str
    size_annotation: str
    rate: Annotated[float, Meta(gt=0)] | None = None
    background: bool = False


class Create(_Part, frozen=True, kw_only=True):
    """Creates `count` objects like `object` in each namespace; `{i}` and `{repeat: N, each: X}` in it as in a template."""

    object: dict[str, Any]
    count: Amount = 1
    namespaces: str


class RelabelNamespace(_Part, frozen=True):
    """Changes labels of namespaces; the value "" removes a label."""

    namespaces: str
    labels: Labels


class ChangePods(_Part, frozen=True):
    """Changes labels or annotations of pods; the value "" removes one. Without `count`: of all selected pods."""

    namespaces: str = "*"
    selector: Labels = {}
    count: Amount | None = None
    pending: bool | None = None
    labels: Labels = {}
    annotations: Labels = {}


class DeletePods(_Part, frozen=True):
    """Deletes `count` random pods of the selected ones; without `count` all."""

    namespaces: str = "*"
    selector: Labels = {}
    count: Amount | None = None
    grace: Duration | None = None


class ScaleDown(_Part, frozen=True):
    """Each ReplicaSet of the selected pods loses `by` pods, in the order of the ReplicaSet controller; without `by` all pods."""

    namespaces: str = "*"
    selector: Labels = {}
    by: AtLeastOne | None = None


class ReplacePods(_Part, frozen=True):
    """`count` random bound pods fail, or with `lost` all pods that have lost their nodes. Each is replaced, as by its owner.

    A pod has lost its nodes if it was bound to a deleted node, or if it is released and its node affinity matches no node.

    With `keep` they do not fail, but each gets one more pod beside it, as from an owner that is scaled up.
    """

    namespaces: str = "*"
    selector: Labels = {}
    count: Amount | None = None
    lost: bool = False
    keep: bool = False


class RestartExtender(_Part, frozen=True):
    """The extender is killed, and another one starts after a time on the same address."""

    down: Duration = Duration(0)


class ChangeNodes(_Part, frozen=True):
    """Cordons, uncordons, relabels or deletes `count` random nodes with matching names; without `count` all."""

    action: Literal["cordon", "uncordon", "relabel", "delete"]
    nodes: str
    count: Amount | None = None
    labels: Labels = {}


class ChangeQuotas(_Part, frozen=True, kw_only=True):
    """Changes limits of all ResourceQuotas of namespaces; the value "" removes one."""

    namespaces: str
    hard: Labels


class Settle(_Part, frozen=True):
    """Waits until the scheduler is idle, and no deleted pod is about to end."""

    timeout: Duration = Duration(60)
    calm: Duration = Duration(0.3)  # how long it must have been idle


class Pause(_Part, frozen=True):
    """Waits for a time."""

    time: Duration


class ExpectMoves(_Part, frozen=True):
    """Checks the moves of the pods of a namespace; what is absent is not checked.

    `evictions`: pods evicted so far. `broken`: pods with a broken constraint now. `worst`: the most pods that were evicted and had no
    replacement that was ready.
    """

    evictions: Amount | None = None
    broken: Amount | None = None
    worst: Amount | None = None


class Expect(_Part, frozen=True):
    """Checks numbers of pods, and why pods are pending; what is absent is not checked.

    `judged`: placed pods that a scheduling policy selects. `missed`: the judged pods whose admission webhook was not reached.
    `victims`: pods that were preempted.
    `waiting`: patterns of pods, `namespace/name`, each with a text that the messages of these pods contain. Every pending
    pod has to match a pattern.
    `skew`: patterns of namespaces, each with the largest difference between two zones in the number of pods with one label `app`.
    `moves`: by namespace. A namespace that is absent has no eviction and no broken pod.
    """

    placed: Amount | None = None
    pending: Amount | None = None
    judged: Amount | None = None
    missed: Amount | None = None
    victims: Amount | None = None
    waiting: Labels | None = None
    skew: dict[str, Amount] = {}
    moves: dict[str, ExpectMoves] | None = None


@dataclass(frozen=True, slots=True)
class ChangeFaults:
    """Replaces the active faults of the API server; one-time faults occur in their order."""

    faults: tuple[Fault, ...]


Action: TypeAlias = (
    Arrive
    | ArriveGroups
    | Create
    | ReplacePods
    | RestartExtender
    | RelabelNamespace
    | ChangePods
    | DeletePods
    | ScaleDown
    | NodeGroup
    | ChangeNodes
    | ChangeQuotas
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
    "scaleDown": ScaleDown,
    "addNodes": NodeGroup,
    "changeNodes": ChangeNodes,
    "changeQuotas": ChangeQuotas,
    "settle": Settle,
    "pause": Pause,
    "expect": Expect,
    "faults": ChangeFaults,
    "arriveGroups": ArriveGroups,
    "create": Create,
    "replacePods": ReplacePods,
    "restartExtender": RestartExtender,
}


@dataclass(frozen=True, slots=True)
class ScenarioStep:
    """One step: its path in the file (for messages), its title, and its action."""

    path: str
    title: str
    action: Action


BIND_PATH: Final = "/bind"  # server.paths.bind of the extender must be equal to it, as bind is off by default


class SchedulerPart(_Part, frozen=True):
    """The settings of the scheduling loop, with the names of KubeSchedulerConfiguration where they exist."""

    count: Annotated[int, Meta(ge=1, le=64)] = 1  # `scheduler-0`, ...; each pod that arrives is given to one at random
    percentage_of_nodes_to_score: Annotated[int, Meta(ge=0, le=100)] = 0
    pod_initial_backoff: Duration = Duration(1)
    pod_max_backoff: Duration = Duration(10)
    bind_delay: tuple[Duration, Duration] = (Duration(0), Duration(0))
    cache_delay: Duration = Duration(0)
    node_cache_capable: bool = True
    prioritize: bool = True
    bind: bool = False
    preemption: Literal["none", "sync", "async"] = "none"
    sends_empty_candidates: bool = False  # as after kubernetes#135486
    queueing_hints: bool = True  # false: as before 1.32, a change of a pod's status does not wake it
    weight: AtLeastOne = 1
    http_timeout: Duration = Duration(5)
    ignorable: bool = False


class ApiServerPart(_Part, frozen=True):
    """The settings of the simulated API server."""

    history: AtLeastOne = 20_000
    slow_after: AtLeastOne = 10_000
    bookmark_every: Duration = Duration(1)
    kubelet_delay: Duration = Duration(0)  # how long a deleted pod takes to end, at most its grace period
    max_kubelet_delay: Duration = Duration(0)  # where it is longer: a random time between both
    write_delay: Duration = Duration(0)  # of every write over HTTP, to simulate a slow API server
    ready_delay: Duration | None = None  # after which a bound pod is ready; without it no kubelet reports readiness


class CostComparison(_Part, frozen=True, kw_only=True):
    """Bounds what the pods of some namespaces may cost the pods of all other namespaces.

    A second run leaves out what steps create in these namespaces. Both runs are repeated `rounds` times in turns, and the
    medians of the rounds are judged.

    `max_slowdown`: ratio of the 99th percentiles of processor time per filter call of the other pods.
    `max_growth`: growth of resident memory.
    `max_overtaken`: how many turns these namespaces may have before an earlier pod of another namespace, the 99th percentile.
    """

    without: str
    rounds: AtLeastOne = 1
    max_slowdown: Annotated[float, Meta(gt=0)] | None = None
    max_growth: ByteSize | None = None
    max_overtaken: Annotated[int, Meta(ge=0)] | None = None


class Scenario(_Part, frozen=True, kw_only=True):
    """A whole scenario. Templates and steps are not parsed here; `parse_scenario` does that."""

    api_version: Literal["placement.extender.dev/v1alpha1"]
    kind: Literal["Scenario"]
    name: str
    description: str = ""
    seed: int = 0
    lag: Duration = Duration(0.25)  # how old a change must be before a decision has to respect it
    cluster: Cluster = Cluster()
    templates: dict[str, dict[str, Any]] = {}
    scheduler: SchedulerPart = SchedulerPart()
    api_server: ApiServerPart = ApiServerPart()
    extender: dict[str, Any] = {}
    faults: tuple[dict[str, Any], ...] = ()  # active from the start until a step replaces them
    steps: tuple[dict[str, Any], ...]
    forever: tuple[dict[str, Any], ...] = ()
    comparison: CostComparison | None = None


@dataclass(frozen=True, slots=True)
class Play:
    """A parsed scenario: settings, templates, faults and steps."""

    scenario: Scenario
    templates: dict[str, Template]
    steps: tuple[ScenarioStep, ...]
    forever: tuple[ScenarioStep, ...]
    faults: tuple[Condition, ...] = ()


def parse_scenario(document: object, *, short: bool = False) -> Play:
    """Builds a scenario from a parsed YAML document. Raises DocumentError with every problem and its path.

    ``short``: each `{full: A, short: B}` in it is B and not A.
    """
    # `prepared` first: it turns the null of a bare `settle:` into a mapping, which would be dropped otherwise.
    cleaned = without_nulls(prepared(document, short=short))
    scenario = read_document(cleaned, Scenario, required=("apiVersion", "kind", "name", "steps"))
    problems: list[str] = []
    templates = {
        name: read_part(raw, Template, f"templates.{name}", problems) for name, raw in scenario.templates.items()
    }
    steps = _read_steps(scenario.steps, "steps", problems)
    forever = _read_steps(scenario.forever, "forever", problems)
    faults = read_conditions(scenario.faults, "faults", problems)
    # Checked here and not when a step runs, so that a typing error does not show after minutes.
    problems += _unknown_templates(scenario, (*steps, *forever))
    if problems:
        raise DocumentError(problems)
    known = {name: template for name, template in templates.items() if template is not None}
    return Play(scenario, known, steps, forever, faults)


def _read_steps(raw: tuple[dict[str, Any], ...], place: str, problems: list[str]) -> tuple[ScenarioStep, ...]:
    steps: list[ScenarioStep] = []
    for number, document in enumerate(raw):
        path = f"{place}[{number}]"
        verbs = [name for name in document if name != "title"]
        # With two actions their order would be unclear, because a mapping of YAML has none.
        if len(verbs) != 1 or verbs[0] not in ACTIONS:
            problems.append(f"{path}: expected one of {', '.join(ACTIONS)}, got {', '.join(verbs) or 'nothing'}")
            continue
        (verb,), path = verbs, f"{path}.{verbs[0]}"
        body, kind = document[verb], ACTIONS[verb]
        is_of_faults = kind is ChangeFaults
        action = (
            ChangeFaults(read_faults(body, path, problems)) if is_of_faults else read_part(body, kind, path, problems)
        )
        if action is not None:
            steps.append(ScenarioStep(path, str(document.get("title", "")), action))
    return tuple(steps)


def _unknown_templates(scenario: Scenario, steps: tuple[ScenarioStep, ...]) -> list[str]:
    used = [(f"cluster.running[{i}].template", run.template) for i, run in enumerate(scenario.cluster.running)]
    for step in steps:
        if isinstance(step.action, Arrive):
            used += [(f"{step.path}.template", name) for name in [step.action.template, *step.action.mix] if name]
        elif isinstance(step.action, ArriveGroups):
            used.append((f"{step.path}.template", step.action.template))
    return [f'{path}: unknown template "{name}"' for path, name in used if name not in scenario.templates]


_LENGTHS: Final = {"full", "short"}
_LISTS: Final = ("steps", "forever", "faults")


def prepared(document: object, *, short: bool) -> object:
    """The document with the values of one length, and with steps that are mappings."""
    return _with_bare_steps(_of_length(document, "short" if short else "full"))


def _of_length(value: object, length: str) -> object:
    """A copy in which each `{full: A, short: B}` is A or B: a short run is the same scenario with fewer pods."""
    if isinstance(value, dict):
        if value.keys() == _LENGTHS:
            return _of_length(value[length], length)
        return {name: _of_length(field, length) for name, field in value.items()}
    if isinstance(value, list):
        return [_of_length(item, length) for item in value]
    return value


def _with_bare_steps(document: object) -> object:
    """Replaces the null of `- settle:` and `- cutLine:` by an empty mapping: a step or fault with all defaults."""
    if not isinstance(document, dict):
        return document
    lists = {name: part for name, part in document.items() if name in _LISTS and isinstance(part, list)}
    return document | {name: [_filled(step) for step in part] for name, part in lists.items()}


def _filled(step: object) -> Any:
    if not isinstance(step, dict):
        return step
    filled = {verb: {} if body is None else body for verb, body in step.items()}
    if isinstance(filled.get("faults"), list):
        filled["faults"] = [_filled(fault) for fault in filled["faults"]]
    return filled
