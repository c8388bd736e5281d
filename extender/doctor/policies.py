"""Findings about scheduling policies, the way to the webhook, and pod groups.

1. A gate that is not removed gives no sign: kube-scheduler ignores the pod, and no event says why.
2. A constraint that only the extender knows gives no sign in an autoscaler: it simulates kube-scheduler, and adds no node or a
   node that does not help.

https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
https://kubernetes.io/docs/concepts/scheduling-eviction/pod-scheduling-readiness/
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from extender.doctor.certificate_faults import (
    PROBLEMS_OF_WEBHOOK,
    WEBHOOK_ADDRESS,
    CertificateFault,
    certificate_fault,
    remedy_of_webhook,
)
from extender.doctor.facts import (
    APPLY_KINDS,
    APPLY_OVERLAY,
    Facts,
    Finding,
    PolicyFacts,
    PolicyInUse,
    bounded,
)
from extender.model.constraints.node_affinity import ANY_NODE
from extender.model.group_placements import PLACEMENTS
from extender.model.policies import KUPID_GROUP, FailurePolicy, InvalidPolicy, Mode, Moment, Policy
from extender.model.release import NoRoom
from extender.model.units import ago, agreeing, counted, listed
from extender.settings.configuration import Settings
from extender.settings.policies import Webhook
from extender.verbs.release.progress import UNDECIDED, GroupOverview, StrayPod, WaitReason
from extender.wire.objects.kinds import TOPOLOGY_DOMAINS
from extender.wire.policies.node_terms import POD_TERMS, SPREAD

_MOST_NAMED: Final = 10  # policies in a finding; the others are only counted
_SEE_POLICIES: Final = "see `kubectl get podpol,cpodpol -A`"
_COMPONENT: Final = f"apply your overlay with `components: [../../policies]` in its kustomization.yaml: {APPLY_OVERLAY}"
_WITHOUT_KIND: Final = {
    PLACEMENTS: "no group of gated pods is released",
    TOPOLOGY_DOMAINS.resource: "no domain can be declared or excluded",
}


def examine_policies(facts: Facts) -> list[Finding]:
    """All findings about policies. O(policies)."""
    policies = facts.policies
    if policies is None:
        return []
    # The API server's own call is the best evidence: then it does not matter whether this machine reaches the URL.
    ways = [*_urls(facts, policies)] if policies.call_fault is None else []
    findings = [
        *_kinds(policies),
        *_webhook(policies, facts.settings.policies.webhook),
        *_calls(policies, facts.settings),
        *ways,
        *_policies(policies),
    ]
    used = [
        entry.policy for entry in policies.policies if isinstance(entry.policy, Policy) and not _selects_nothing(entry)
    ]
    used = [policy for policy in used if policy.mode is Mode.ENFORCE]
    return [*findings, *_unseen(used, excludes=facts.settings.decides_spread)]


def _kinds(facts: PolicyFacts) -> Iterator[Finding]:
    for resource in facts.not_served:
        effect = _WITHOUT_KIND.get(resource.partition(".")[0], "none of these policies is in effect")
        remedy = f"{APPLY_KINDS}: {effect}; the service sees the CRD within half a minute"
        if resource.endswith(KUPID_GROUP):
            remedy = "apply the CRDs of kupid, or set policies.kupid: false"
        yield Finding("error", "crds", f"the API server does not serve {resource}", remedy)
    for kind, fields in facts.dropped.items():
        problem = f"the CRD of {kind} is older than the service: the API server drops {', '.join(fields)}"
        yield Finding("warning", "crds", problem, f"{APPLY_KINDS}, from the version that runs")


def _webhook(facts: PolicyFacts, webhook: Webhook) -> Iterator[Finding]:
    for name in facts.no_configuration:
        remedy = (
            f"{_COMPONENT}; the leader creates a configuration only if role.yaml lets it and the caBundle is its own"
        )
        yield Finding("error", "webhook", f"{name} does not exist: the API server calls no webhook", remedy)
    for name in facts.untrusted:
        problem = f"the caBundle of {name} does not verify the serving certificate: every call of the webhook fails"
        yield Finding("error", "webhook", problem, remedy_of_webhook(CertificateFault.OTHER_CA, webhook))
    for name, ready in facts.services.items():
        if ready is None:
            remedy = f"{_COMPONENT}; or set policies.webhook.service and serviceNamespace"
            yield Finding("error", "webhook", f"the Service {name} of the webhook does not exist", remedy)
        elif ready == 0:
            remedy = "check that replicas run with POD_NAME, POD_UID and POD_IP, and /readyz of the webhook's port"
            yield Finding("error", "webhook", f"the Service {name} of the webhook has no ready endpoint", remedy)


def _calls(facts: PolicyFacts, settings: Settings) -> Iterator[Finding]:
    """Whether the API server reaches the webhook, and whether it calls it for all objects."""
    webhook = settings.policies.webhook
    if facts.call_fault:
        what, remedy = _cause(facts.call_fault, webhook)
        then = "refused" if webhook.failure_policy == "Fail" else "created without policies"
        problem = f"the API server cannot call the webhook: {what}; each pod is {then}: {facts.call_fault}"
        yield Finding("error", "webhook", problem, remedy)
    for selector, what in facts.selects_nothing.items():
        problem = f"{selector} of MutatingWebhookConfiguration {webhook.configuration} selects no {what} of the cluster: admission applies no policy"
        remedy = "widen it, or delete it from the configuration: the leader writes what the settings require"
        yield Finding("warning", "webhook", problem, remedy)


def _cause(text: str, webhook: Webhook) -> tuple[str, str]:
    """The cause of a failed call, by the error of the API server, and its remedy."""
    if fault := certificate_fault(text):
        return PROBLEMS_OF_WEBHOOK[fault], remedy_of_webhook(fault, webhook)
    way = "policies.webhook.url" if webhook.url else f"port {webhook.bind_address.port} of the extender's pods"
    if "refused" in text:
        return f"nothing listens at {way}", f"see whether the extender's pods run, and correct {WEBHOOK_ADDRESS}"
    if "could not find the requested resource" in text or "HTTP response to HTTPS client" in text:
        return f"another program answers at {way}", f"correct {WEBHOOK_ADDRESS}, without a path"
    what = f"no answer comes in {webhook.timeout}, for which each pod waits"
    blocked = f"let the API server connect to {way}: look for a firewall or NetworkPolicy in between"
    return what, f"{blocked}; if there is none, the process hangs: restart it"


def _urls(facts: Facts, policies: PolicyFacts) -> Iterator[Finding]:
    """What this machine sees of the URLs that the API server calls."""
    webhook = facts.settings.policies.webhook
    way = "set policies.webhook.url to where the API server reaches policies.webhook.bindAddress, without a path"
    for url, why in policies.lost_urls.items():
        fault = certificate_fault(why)
        if fault is CertificateFault.OTHER_CA and policies.untrusted:
            continue  # that finding names the configuration
        remedy = way if fault is None else remedy_of_webhook(fault, webhook)
        yield Finding("error", "webhook", f"{url}, the webhook's, does not lead to it: {why}", remedy)
    if facts.total("extender_admission_reviews_total") > 0:
        return  # the API server has reached this replica, so only this machine may not reach it
    for url, why in policies.unproven.items():
        problem = f"{url}, the webhook's, cannot be reached from this machine: {why}"
        yield Finding("warning", "webhook", problem, f"try it from the API server's machine; if it fails there, {way}")


def _policies(facts: PolicyFacts) -> Iterator[Finding]:
    invalid = [_invalid(entry.policy) for entry in facts.policies if isinstance(entry.policy, InvalidPolicy)]
    # Errors first, because only the first few are named.
    yield from bounded(
        sorted(invalid, key=lambda finding: finding.severity != "error"), "policies are invalid", _SEE_POLICIES
    )
    matchless = [entry for entry in facts.policies if isinstance(entry.policy, Policy)]
    yield from bounded(
        [_matchless(entry.policy) for entry in matchless if _selects_nothing(entry)],
        "policies match no pod",
        _SEE_POLICIES,
    )


def _invalid(policy: InvalidPolicy) -> Finding:
    rejects = policy.failure_policy is FailurePolicy.FAIL
    effect = "pods that it may select are rejected" if rejects else "it is not applied"
    remedy = (
        "correct the field, and apply the policy: the API server shows all of its errors while the webhook is reachable"
    )
    problem = f"{policy.key} is invalid, so {effect}: {policy.errors[0]}"
    return Finding("error" if rejects else "warning", "policies", problem, remedy)


def _selects_nothing(entry: PolicyInUse) -> bool:
    # `== 0`: None means that no status has been written yet.
    return entry.matched == 0 or _absent_selector(entry.policy) != ""


def _absent_selector(policy: Policy | InvalidPolicy) -> str:
    scope = policy.scope
    if scope is None:
        return ""
    if scope.pod_selector.nothing:
        return "podSelector"
    return "namespaceSelector" if scope.namespace_selector.nothing else ""


def _matchless(policy: Policy | InvalidPolicy) -> Finding:
    absent = _absent_selector(policy)
    if absent:
        problem, remedy = f"{policy.key} can match no pod: {absent} is absent", f"set it; {absent}: {{}} selects all"
        return Finding("warning", "policies", problem, remedy)
    remedy = "nothing to do if its pods are still to come; else compare its selectors with the labels of the pods"
    return Finding("info", "policies", f"{policy.key} matches no pod of the cluster", remedy)


_AUTOSCALERS: Final = "autoscalers"
_SEE_AUTOSCALERS: Final = "see config/explanation/other-controllers.md"


def _unseen(policies: list[Policy], *, excludes: bool) -> Iterator[Finding]:
    """Directives of policies in use that an autoscaler does not see, and the effect. One finding for each sort. O(policies).

    ``excludes``: whether the extender decides spread, so that it can exclude domains.
    """
    # Each sort has its own problem and remedy; a policy may be in several of them.
    # 1. Pods at a gate, with and without the action GrowingDomain.
    grouped = [
        (policy, policy.release) for policy in policies if policy.acts(Moment.RELEASE) and policy.release is not None
    ]
    growing = [policy for policy, release in grouped if release.does(NoRoom.GROWING_DOMAIN)]
    waiting = [policy for policy, release in grouped if not release.does(NoRoom.GROWING_DOMAIN)]
    problem = "autoscalers ignore pods at the gates of {}: no node is added for a group before it is released"
    remedy = "for a group without room let release.noRoom have GrowingDomain, with mayGrow: true at the domains that get nodes"
    yield from _not_seen(waiting, problem, remedy)
    yield from _not_seen(
        growing, problem, "nothing to do: a group without room is released into a domain that may grow"
    )
    # 2. Reserved room.
    problem = (
        "autoscalers do not know the room that is reserved for groups of {}: "
        "no node is added for other pods that would fit there, until the room is used or free again"
    )
    yield from _not_seen(
        [policy for policy, _ in grouped], problem, "nothing to do where such pods can wait for that long"
    )
    # 3. Excluded domains.
    leaving = [policy for policy in policies if any(directive.leaves_out for directive in policy.directives.spread)]
    if excludes:
        yield from _left_out(leaving)
    elif leaving:
        fields = "spec.spread.unavailableDomains and fullDomains"
        problem = f"{fields} of {_named(leaving)} have no effect: kube-scheduler's plugin decides spread, and counts such domains"
        remedy = "set mode: offload with rules.topologySpread.enabled, or remove the fields"
        yield Finding("warning", "policies", problem, remedy)
    # 4. Declared domains without nodes.
    seen = [policy for policy in policies if policy.acts(Moment.ADMISSION)]
    problem = (
        "autoscalers do not see the declared domains without nodes of {}, only their number, in pods that admission has "
        "seen: they add a node in a new domain only if they have a group of nodes for it"
    )
    declaring = [policy for policy in seen if any(directive.declared for directive in policy.directives.spread)]
    yield from _not_seen(declaring, problem, "keep a group of nodes, or a NodePool, for each declared domain")
    # 5. Requirements that are applied at scheduling only.
    problem = (
        "autoscalers do not see the requirements of {}: they add no node for a pod that fits a node by its own fields alone, "
        "and for other pods they may add a node that does not help"
    )
    # What admission writes into a pod is part of the pod, and an autoscaler simulates with it.
    hidden = [policy for policy in policies if not policy.acts(Moment.ADMISSION) and _requires(policy)]
    yield from _not_seen(hidden, problem, "write it into new pods by when: [Admission, Scheduling]")


def _left_out(policies: list[Policy]) -> Iterator[Finding]:
    problem = (
        "autoscalers count the domains that {} exclude as unavailable: they may add nodes for pods that get "
        "a place in other domains, and a node in an excluded domain"
    )
    lost = [
        policy
        for policy in policies
        if any(directive.excludes_after is not None for directive in policy.directives.spread)
    ]
    yield from _not_seen(lost, problem, "keep the group of nodes of a domain that is drained on purpose from growing")
    problem = "autoscalers count the domains that {} exclude as full: they may add a node in one, which the pod does not wait for"
    full = [policy for policy in policies if any(directive.excludes_full for directive in policy.directives.spread)]
    yield from _not_seen(full, problem, "nothing to do, unless such nodes stay empty")


def _not_seen(policies: list[Policy], problem: str, remedy: str) -> Iterator[Finding]:
    if policies:
        yield Finding("info", _AUTOSCALERS, problem.format(_named(policies)), f"{remedy}; {_SEE_AUTOSCALERS}")


def _named(policies: list[Policy]) -> str:
    return listed([str(policy.key) for policy in policies], most=_MOST_NAMED)


def _requires(policy: Policy) -> bool:
    """Whether filter requires something by this policy that the pods do not carry. Preferences do not matter here. O(constraints)."""
    directives = policy.directives
    constraints = directives.lists.get(SPREAD, ())
    return (
        bool(directives.node_name)
        or directives.nodes != ANY_NODE
        or any(directives.lists.get(path) for path in POD_TERMS)
        or any(constraint.value.get("whenUnsatisfiable") == "DoNotSchedule" for constraint in constraints)
        or any(
            directive.completes_keys or directive.min_domains or directive.declared for directive in directives.spread
        )
    )


_GATES: Final = "gates"
_USUAL_GRACE: Final = 120.0  # seconds in which a new pod may be in no group, because its policy is new too
_REMEDIES: Final[Mapping[str, str]] = {
    UNDECIDED: "check that a replica leads, that release.enabled is true, and that it may write GroupPlacements",
    WaitReason.INCOMPLETE: "create the pods that are missing (a StatefulSet needs podManagementPolicy Parallel), or correct release.size",
    WaitReason.NO_SIZE: "give the pods the label or annotation with a number that release.size of the policy names",
    WaitReason.FOREIGN_GATE: "find out which controller removes the other gates; the extender removes only its own",
    WaitReason.BUDGET: "wait until other groups of the namespace have nodes, or raise the setting",
    WaitReason.NO_ROOM: "add nodes to a domain, free some, or let release.noRoom of the policy release it",
    WaitReason.DOMAIN_FULL: "free room in the domain, or delete all pods of the group, so that it is decided again",
    WaitReason.BEYOND_SIZE: "scale the workload to the size of its group, or let the policy release them with laterPods Join",
    WaitReason.QUOTA: "wait until pods of the policy are gone, or raise the quota of a domain or maxPerDomain",
    WaitReason.NO_NODES_YET: "find out from the autoscaler why it adds no nodes to the domain",
    WaitReason.REFUSED: "delete these pods, so that their owner creates them again",
}
_OTHERS: Final = "see the log of the leader, and `kubectl describe gpl -A`"


def examine_groups(facts: Facts) -> list[Finding]:
    """All findings about pod groups, the group that waits longest first. O(groups)."""
    waiting = facts.groups
    if waiting is None:
        return []
    now = datetime.fromtimestamp(facts.now, UTC)
    overdue = sorted((group for group in waiting.groups if group.is_overdue(now)), key=lambda group: -group.age(now))
    what = "groups are held at their gates for longer than their policies allow"
    late = bounded([_overdue(group, now) for group in overdue], what, "see `extender groups --waiting`")
    return [*late, *_strays([stray for stray in waiting.strays if _is_old(stray, now)])]


def _overdue(group: GroupOverview, now: datetime) -> Finding:
    problem = (
        f"group {group.key} ({group.key.policy}): {_held(group.pods - group.released)} at its gate for "
        f"{ago(group.age(now))}, its time in release.noRoom is {ago(group.timeout)}: {group.message or group.reason}"
    )
    return Finding("warning", _GATES, problem, _REMEDIES.get(group.reason, _OTHERS))


def _held(pods: int) -> str:
    return f"{counted(pods, 'pod')} {agreeing(pods, 'is', 'are')} held"


def _is_old(stray: StrayPod, now: datetime) -> bool:
    return stray.since is None or (now - stray.since).total_seconds() > _USUAL_GRACE


def _strays(strays: list[StrayPod]) -> Iterator[Finding]:
    if strays:
        first = strays[0]
        problem = f"{_held(len(strays))} at a gate of ours that no policy removes, such as {first.pod} ({first.gate})"
        remedy = "apply a policy that selects them; the leader releases the others if policies are enabled and it may patch pods"
        yield Finding("warning", _GATES, problem, remedy)
