"""The admission verb: injects policies into pods and pod templates, and validates policies.

An object costs O(its scheduling fields + the policies that select it). A budget limits the joining of node terms.

No error leaves the verb. A policy that fails is left out, or it refuses the object if its failurePolicy is Fail. All other
policies are applied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from zlib import crc32

from extender.index.availability import DomainsView
from extender.index.policies import PoliciesView
from extender.model.bounded import Steps, at_once
from extender.model.constraints.labels import Labels
from extender.model.constraints.spread import revision_key
from extender.model.objects import DAEMON_SET
from extender.model.policies import (
    DEFAULT_SERVICE_ACCOUNT,
    EXEMPT_LABEL,
    FailurePolicy,
    JsonObject,
    Mode,
    Moment,
    Policy,
    PolicyKey,
    Subject,
)
from extender.settings.configuration import Settings
from extender.verbs.admit.injected import (
    ANNOTATION,
    MOST_RECORDED,
    InjectionRecord,
    annotated,
    is_true,
    joined,
    read_records,
    record_of,
    subtract,
    write_records,
)
from extender.verbs.admit.injection import Injection, InjectionOutcome, gating
from extender.verbs.admit.json_edits import Operation, SpecFields, drop, get, make_patch
from extender.verbs.admit.pod_fields import Bounds, Changes, FieldConflict, titles
from extender.verbs.admit.policy_reviews import NodeReader, review_policy
from extender.verbs.admit.reviews import (
    FAILED,
    FORBIDDEN,
    MALFORMED,
    POD,
    Path,
    Request,
    ReviewError,
    allowed,
    controller_of,
    denied,
    kind_name,
    path_text,
    read,
    read_review,
    template_paths,
    uid_of,
    why_not,
    written,
)
from extender.verbs.admit.spread_directives import NO_COMPLETIONS, NewPod
from extender.verbs.admit.term_product import AdmissionBudget
from extender.wire.policies.policy_validation import POLICY_KINDS

_MOST_DESCRIBED: Final = 100  # conflicts that are put into words; a response has room for fewer
_MOST_TITLED: Final = 1000  # changes that are put into the audit annotations
_MIRROR: Final = "kubernetes.io/config.mirror"  # a static pod's copy, which the kubelet does not read
_AT_THE_WEBHOOK: Final = frozenset({Moment.ADMISSION, Moment.RELEASE})  # admission adds the gate of a release
_COMPUTED_FROM_CLASS: Final = ("priority", "preemptionPolicy")


class NamespaceReader(Protocol):
    """Namespaces by name (`index/objects/namespaces.py`)."""

    def labels(self, name: str) -> Labels | None:
        """The labels of a namespace, None where its object is not known."""


@dataclass(frozen=True, slots=True)
class Admission:
    """A review with its response. The other fields are for metrics, events and status.

    ``audited``: what policies in mode Audit would change. ``failed``: policies that could not be applied.
    """

    review: JsonObject
    kind: str = ""
    namespace: str = ""
    dry_run: bool = False
    changes: tuple[Changes, ...] = ()
    audited: tuple[Changes, ...] = ()
    failed: tuple[PolicyKey, ...] = ()

    @property
    def result(self) -> str:
        """``malformed``, ``denied``, ``mutated`` or ``allowed``."""
        response = self.review["response"]
        if response["allowed"]:
            return "mutated" if "patch" in response else "allowed"
        return "malformed" if response["status"]["code"] == MALFORMED else "denied"


class DeniedError(Exception):
    """Raised inside the verb where an object is to be refused."""


@dataclass(slots=True)
class _Findings(InjectionOutcome):
    """The outcome for one object, over all of its pod templates."""

    budget: AdmissionBudget = field(default_factory=AdmissionBudget)
    note: str = ""

    def check(self) -> None:
        """Raises `DeniedError` where a policy refuses the object."""
        if self.refused_by is not None:
            raise DeniedError

    def denial(self) -> tuple[int, str]:
        """The code and the text of a refusal."""
        if self.conflict is not None:
            return FORBIDDEN, f"rejected by {self.conflict.policy}: {self.conflict.field}: {self.conflict.message}"
        (text,) = (text for key, text in self.failed.items() if key == self.refused_by)
        # 500 and not 403: the API server and clients treat it as a fault of the webhook, which a retry may cure.
        return FAILED, f"{self.refused_by} cannot be applied: {text}"

    def warnings(self) -> list[str]:
        """Warnings about policies that could not be applied and do not refuse the object."""
        failed = [f"{key} is not applied: {text}" for key, text in self.failed.items() if key != self.refused_by]
        return [*failed, *([self.note] if self.note else [])]

    def notes(self) -> dict[str, str]:
        """The audit annotations: the API server writes the webhook's name in front of each."""
        notes = {
            # Templates of one object are mostly changed alike, so equal titles are named once.
            "applied": "; ".join(dict.fromkeys(titles(self.changes[:_MOST_TITLED]))),
            "audited": "; ".join(dict.fromkeys(titles(self.audited[:_MOST_TITLED]))),
            "conflicts": "; ".join(map(_describe, self.conflicts()[:_MOST_DESCRIBED])),
            "errors": "; ".join(
                [*(f"{key}: {text}" for key, text in self.failed.items()), *([self.note] if self.note else [])]
            ),
        }
        return {name: text for name, text in notes.items() if text}

    def conflicts(self) -> list[FieldConflict]:
        """The conflicts of all policies, also of policies in mode Audit."""
        return [conflict for change in (*self.changes, *self.audited) for conflict in change.conflicts]


def _describe(conflict: FieldConflict) -> str:
    return f"{conflict.policy}: {conflict.field}: {conflict.message} ({conflict.resolution})"


class AdmitVerb:
    """Decides AdmissionReviews. It has no effects and no state, so all replicas give the same answer."""

    def __init__(
        self,
        policies: PoliciesView,
        namespaces: NamespaceReader,
        settings: Settings,
        nodes: NodeReader | None = None,
        domains: DomainsView | None = None,
    ) -> None:
        """``domains``: the declared domains; None: none are declared."""
        self._domains = domains
        self._policies = policies
        self._namespaces = namespaces
        self._nodes = nodes
        self._settings = settings
        self._exempt = settings.policies.exempt
        self._templates = settings.policies.templates
        self._most_templates = settings.policies.max_templates
        self._bounds = Bounds.of(settings)

    def namespace_of(self, review: Any) -> str:
        """The namespace that has to be read before the review is decided; empty where its labels are known already. O(1)."""
        request = review.get("request") if isinstance(review, dict) else None
        name = str(request.get("namespace") or "") if isinstance(request, dict) else ""
        return name if name and len(self._policies) and self._namespaces.labels(name) is None else ""

    def decide(self, review: Any) -> JsonObject:
        """The AdmissionReview with the response to one with a request. Never raises."""
        return self.admit(review).review

    def admit(self, review: Any) -> Admission:
        """As `decide`, with the changes that led to the response."""
        return at_once(self.admit_in_steps(review))

    def admit_in_steps(self, review: Any) -> Steps[Admission]:
        """As `admit`, in steps: one for each pod template. A policy that changes between steps counts for the later templates."""
        try:
            request = read_review(review)
        except ReviewError as error:
            return Admission(denied(uid_of(review), MALFORMED, str(error)))
        try:
            return (yield from self._admit(request))
        except Exception as error:  # noqa: BLE001 (an answer is due whatever the object holds; the text names the error)
            return self._given_up(request, f"no policy is applied: {type(error).__name__}: {error}")

    def _given_up(self, request: Request, text: str) -> Admission:
        """The answer to an object that cannot be injected at all. It is refused if a policy with failurePolicy Fail may select it."""
        # Which policies select the object is not known here, so any policy that could decides.
        strict = next((policy.key for policy in self._policies if _must_not_be_missed(policy, request.namespace)), None)
        review = (
            allowed(request.uid, warnings=[text], notes={"errors": text})
            if strict is None
            else denied(request.uid, FAILED, f"{strict}: {text}", notes={"errors": text})
        )
        return Admission(review, kind_name(request.kind), request.namespace, request.dry_run)

    def _admit(self, request: Request) -> Steps[Admission]:
        kind = kind_name(request.kind)
        if (str(request.kind.get("group")), str(request.kind.get("kind"))) in POLICY_KINDS:
            review = review_policy(request, self._policies, self._namespaces.labels, self._nodes, self._settings)
            return Admission(review, kind, request.namespace, request.dry_run)
        reason = self._why_not(request, kind)
        if reason:
            review = allowed(request.uid, notes={"skipped": reason})
            return Admission(review, kind, request.namespace, request.dry_run)
        return (yield from self._inject(request, kind))

    def _why_not(self, request: Request, kind: str) -> str:
        """The reason why nothing is injected into an object; empty if policies are to be applied."""
        # The reason becomes an audit annotation, so that an administrator sees why a pod has no directives.
        exempt, metadata = self._exempt, request.obj["metadata"]
        if request.namespace in exempt.namespaces:
            return f"namespace {request.namespace} is exempt"
        if request.subresource:
            return f"subresource {request.subresource}"
        reason = why_not(kind, request.operation, request.obj, self._templates)
        if not reason and exempt.covers(request.namespace, _mapping(metadata, "labels")):
            return f"label {EXEMPT_LABEL}"
        if not reason and _MIRROR in _mapping(metadata, "annotations"):
            return "a mirror pod is not run from its object"
        return reason

    def _is_to_wait(self, request: Request, subject: Subject, spec: JsonObject) -> bool:
        """Whether a new pod gets the gate of a policy that releases pod groups (KEP-3521).

        A gate can be set only when a pod is created, and only the extender removes this one. A pod without it escapes its group:
        kube-scheduler places the pod at once and alone. These pods get no gate:

        1. a pod with a node: the API server refuses gates beside a node name;
        2. a pod of a DaemonSet: it belongs to one node. The owner reference is written by the creator of the pod, so it is trusted
           only from the users that create pods of DaemonSets;
        3. a pod with a schedulingGroup, where the settings exempt it: kube-scheduler places it with its group (KEP-5732).
        """
        exemptions = self._settings.policies.exemptions
        return not (
            spec.get("nodeName")
            or (subject.owner_kind == DAEMON_SET and request.user in exemptions.daemon_sets_by)
            or (exemptions.scheduling_groups and spec.get("schedulingGroup"))
        )

    def _inject(self, request: Request, kind: str) -> Steps[Admission]:
        findings = _Findings()
        try:
            patch = yield from self._patch(request, kind, findings)
        except DeniedError:
            code, text = findings.denial()
            review = denied(request.uid, code, text, warnings=findings.warnings(), notes=findings.notes())
        else:
            conflicts = [conflict for done in findings.changes for conflict in done.conflicts][:_MOST_DESCRIBED]
            warnings = [*findings.warnings(), *map(_describe, conflicts)]
            review = allowed(request.uid, patch=patch, warnings=warnings, notes=findings.notes())
        done = tuple(findings.changes), tuple(findings.audited), tuple(findings.failed)
        return Admission(review, kind, request.namespace, request.dry_run, *done)

    def _patch(self, request: Request, kind: str, findings: _Findings) -> Steps[list[Operation]]:
        obj = request.obj
        text = get(obj, ANNOTATION)
        recorded = records = read_records(text)
        # A record of the old object is trusted, because an earlier review wrote it. A new record may come from a user, so it counts
        # only if the policies of today inject what it says.
        if recorded and text != get(request.old, ANNOTATION):
            records = {place: record for place, record in recorded.items() if is_true(record, self._policies)}
        # By pointer of the template: a JobSet has several templates, each with values of its own.
        kept: dict[str, InjectionRecord] = {}
        changed: dict[Path, JsonObject] = {}
        for at, path in enumerate(template_paths(kind, obj, self._templates, self._most_templates)):
            if at:
                yield
            place, template = path_text(path), read(obj, path)
            new, record = self._template(request, kind, template, records.get(place), findings)
            if new is not template:
                changed[path] = new
            if record is not None:
                kept[place] = record
        if changed:
            obj = written(obj, changed)
        if kept != recorded or (text is not None and not kept):
            text = write_records(kept)
            # Without a record nothing can be taken out later. The values stay, and the user is told.
            if len(text) > MOST_RECORDED:
                findings.note = f"the injected values are not recorded and stay when policies change: the annotation would have {len(text)} bytes, {MOST_RECORDED} are allowed"
            obj = annotated(obj, text if len(text) <= MOST_RECORDED else "")
        return make_patch(request.obj, obj) if obj is not request.obj else []

    def _template(
        self, request: Request, kind: str, template: JsonObject, record: InjectionRecord | None, findings: _Findings
    ) -> tuple[JsonObject, InjectionRecord | None]:
        """A pod or a pod template with its policies injected, and the record of the injection."""
        spec = template.get("spec")
        if not isinstance(spec, dict):
            return template, None
        is_pod = kind == POD
        # Owner and service account are read from the object under review: a pod has its owner, a workload is the owner
        # of its pods.
        controller = controller_of(request.obj) if is_pod else {}
        owner = controller.get("kind") if is_pod else request.kind.get("kind")
        subject = _subject(request, template, spec, str(owner or ""), self._namespaces)
        for invalid in self._policies.invalid_for(subject):
            is_strict = invalid.must_not_be_missed(Moment.ADMISSION, Moment.RELEASE)
            findings.fail(invalid.key, invalid.errors[0], is_strict=is_strict)
            findings.check()
        # A template is injected again at each update, so the old values leave first. From a pod nothing is taken out: it may run already.
        clean = spec if is_pod or record is None else subtract(spec, record)
        # The labels of a namespace that was just created may not have arrived. Whether such a policy applies is then
        # unknown.
        for policy in self._policies.undecided(subject, *_AT_THE_WEBHOOK):
            is_strict = policy.mode is Mode.ENFORCE and policy.failure_policy is FailurePolicy.FAIL
            findings.fail(policy.key, f"namespace {request.namespace} is not known yet", is_strict=is_strict)
            findings.check()
        # Invalid and undecided policies have been handled above, so these can be applied. A policy without a gate for this pod, and
        # without directives for this kind of object, does not count against the limit of policies.
        selected = self._policies.select(subject, *_AT_THE_WEBHOOK)
        releases = is_pod and self._settings.release.enabled and any(policy.release is not None for policy in selected)
        is_gated = releases and self._is_to_wait(request, subject, spec)
        gates = {policy.key for policy in gating(selected)} if is_gated else ()
        acting = [policy for policy in selected if policy.key in gates or policy.is_injected(is_pod=is_pod)]
        policies = findings.within(self._bounds, acting)
        findings.check()
        fields = SpecFields(clean, self._bounds, findings.budget)
        injection = Injection(
            fields,
            is_pod=is_pod,
            scheduler_seed=crc32(_seed(request, controller).encode()),
            gates=gates,
            new=self._new_pod(subject, policies) if is_pod else NO_COMPLETIONS,
        )
        changes = findings.apply(injection, policies)
        findings.changes += changes
        findings.check()
        new = record_of(fields, changes)
        if is_pod:
            if record is not None:
                new = record if new is None else joined(record, new)
            finished = _without_computed(spec, fields.spec)
        else:
            finished = fields.spec
        return (template if finished is spec else {**template, "spec": finished}), new

    def _declared(self, topology_key: str) -> int:
        return 0 if self._domains is None else len(self._domains.declared(topology_key))

    def _new_pod(self, subject: Subject, policies: Sequence[Policy]) -> NewPod:
        """The directives that complete the spread constraints of a new pod."""
        if not any(policy.directives.spread for policy in policies):
            return NO_COMPLETIONS
        acting = (
            policy.directives.spread
            for policy in policies
            if policy.mode is Mode.ENFORCE and policy.is_injected(is_pod=True)
        )
        revision = revision_key(subject.owner_kind, subject.labels)
        return NewPod(revision, [directive for directives in acting for directive in directives], self._declared)


def _must_not_be_missed(policy: Policy, namespace: str) -> bool:
    is_near = policy.key.namespace in ("", namespace)
    return is_near and policy.failure_policy is FailurePolicy.FAIL and bool(policy.when & _AT_THE_WEBHOOK)


def _subject(
    request: Request, template: JsonObject, spec: JsonObject, owner_kind: str, namespaces: NamespaceReader
) -> Subject:
    metadata = template.get("metadata")
    labels = _mapping(metadata if isinstance(metadata, dict) else {}, "labels")
    return Subject(
        namespace=request.namespace,
        labels={key: value for key, value in labels.items() if isinstance(value, str)},
        namespace_labels=namespaces.labels(request.namespace),
        owner_kind=owner_kind,
        service_account=str(spec.get("serviceAccountName") or DEFAULT_SERVICE_ACCOUNT),
        priority_class=str(spec.get("priorityClassName") or ""),
    )


def _seed(request: Request, controller: JsonObject) -> str:
    """The text that chooses among several scheduler names.

    - A pod with a controller: the controller's UID, so that all of its pods get the same scheduler.
    - Else namespace and name. A workload has a name before it has a UID, so its template keeps its scheduler over updates.
    """
    metadata = request.obj["metadata"]
    name = metadata.get("generateName") or metadata.get("name")
    return str(controller.get("uid") or f"{request.namespace}/{name}")


def _without_computed(old: JsonObject, new: JsonObject) -> JsonObject:
    """The new spec; where the priority class was changed, without the fields that the API server computed from the old class.

    The Priority plugin of the API server runs again after a webhook, and refuses a pod whose priority differs from its class:
    https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/
    """
    if (old.get("priorityClassName") or "") == (new.get("priorityClassName") or ""):
        return new
    for name in _COMPUTED_FROM_CLASS:
        new = drop(new, (name,))
    return new


def _mapping(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    part = value.get(name)
    return part if isinstance(part, dict) else {}
