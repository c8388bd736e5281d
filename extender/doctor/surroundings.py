"""Findings about the surroundings of the service: permissions, clocks, certificates, the Lease, and the schedulers that call it.

A scheduler is named by the schedulerName of the pods in its requests. Each profile of one kube-scheduler has its own name, and the
profiles share one cache. So the names do not show how many schedulers there are.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from extender.doctor.facts import RENEW, Facts, Finding, Severity, granting
from extender.index.counts.namespace_budgets import OTHERS
from extender.model.units import ago, agreeing, counted, listed
from extender.verbs.explain.scheduler_requests import SETTLED_SECONDS

_SKEW_SECONDS: Final = 5.0
EXPIRES_SOON: Final = 14 * 86400.0  # twice as early as the alert
_LEASE_SILENT_SECONDS: Final = 120.0


def examine_surroundings(facts: Facts) -> list[Finding]:
    """Every finding about them. O(samples + permissions)."""
    return [*_permissions(facts), *_clocks(facts), *_certificates(facts), *_lease(facts)]


def _permissions(facts: Facts) -> Iterator[Finding]:
    if facts.account and facts.denied is None:
        problem = f"the permissions of {facts.account} were not checked: this command may not review permissions of other accounts"
        yield Finding("info", "account", problem, "let an account ask that may create subjectaccessreviews")
    elif facts.account:
        problem = f"permissions were checked for {facts.account}, which may not be the service's account"
        place = facts.settings.leader_election.lease_namespace or "NAMESPACE"
        example = f"--as system:serviceaccount:{place}:placement-extender"
        remedy = f"name the service's account ({example}), or its kubeconfig with --kubeconfig"
        yield Finding("info", "account", problem, remedy)
    for permission in facts.denied or ():
        severity: Severity = "error" if permission.is_needed else "warning"
        remedy = f"{granting(permission.what, permission.verb, facts.settings)} ({permission.why})"
        yield Finding(severity, "permissions", f"the account may not {permission}", remedy)


def _clocks(facts: Facts) -> Iterator[Finding]:
    for whose, ahead in facts.clocks.items():
        # The Date header has whole seconds, and the answer was under way: a small difference says nothing.
        if abs(ahead) > _SKEW_SECONDS:
            way = "ahead of" if ahead > 0 else "behind"
            problem = f"the clock of {whose} is {abs(ahead):.0f} s {way} this one"
            remedy = "synchronize the clocks with NTP: certificates and tokens have times"
            yield Finding("warning", "clock", problem, remedy)


def _certificates(facts: Facts) -> Iterator[Finding]:
    for sample in facts.series("extender_certificate_expiry_timestamp_seconds"):
        remaining = sample.value - facts.now
        name = sample.labels["name"]
        remedy = f"{RENEW}; the service reloads the files by itself"
        if remaining <= 0:
            yield Finding("error", "certificate", f"the certificate {name} expired {ago(-remaining)} ago", remedy)
        elif remaining < EXPIRES_SOON:
            yield Finding("warning", "certificate", f"the certificate {name} expires in {ago(remaining)}", remedy)
    for sample in facts.series("extender_certificate_files_unusable"):
        if sample.value:
            cause = sample.labels["cause"]
            problem, remedy = _CAUSES.get(cause, (f"cannot be used ({cause})", "the service's log names the file"))
            problem = f"the certificate files on disk {problem}; the previous ones stay in use"
            yield Finding("warning", "certificate", problem, remedy)


# The problem of the files on disk and its remedy, by the label `cause`.
_CAUSES: Final = {
    "unreadable": ("cannot be opened", "make them readable for the service's user"),
    "malformed": ("are not in PEM form", "write the certificate and its key in PEM form"),
    "password": ("contain a key with a password", "write the key without a password"),
    "mismatch": ("are a certificate and the key of another one", "write both files of one renewal"),
    "expired": ("contain an expired certificate", RENEW),
    "not_yet_valid": (
        "contain a certificate that is not valid yet",
        "check the clocks and the certificate's notBefore",
    ),
    "no_authority": (
        "contain a client CA certificate without CA:TRUE",
        "put the CA's own certificate into server.tls.clientCAFile",
    ),
    "rejected": ("are rejected by OpenSSL", "see OpenSSL's message in the service's log; often a key is too short"),
}


def _lease(facts: Facts) -> Iterator[Finding]:
    if facts.lease_holder is None:
        return
    if not facts.lease_holder:
        yield Finding("error", "lease", "no replica holds the Lease, so none answers", "see the logs of the replicas")
    # Much longer than leaseDuration, because the clocks of this machine and of the leader may differ.
    elif facts.lease_age > _LEASE_SILENT_SECONDS:
        problem = f"{facts.lease_holder} holds the Lease but has not renewed it for {ago(facts.lease_age)}"
        remedy = f"no replica runs, or none may update the Lease; {granting('leases', 'update', facts.settings)}"
        yield Finding("error", "lease", problem, remedy)


_CHECK: Final = "schedulers"
_NAMED: Final = 5


def asking_schedulers(facts: Facts) -> set[str]:
    """The schedulers that have sent requests since the service started. O(samples)."""
    return {sample.labels["scheduler"] for sample in facts.series("extender_scheduler_decisions_total") if sample.value}


def unasked_names(facts: Facts, profiles: Collection[str], waiting: Iterable[tuple[str, float]]) -> Mapping[str, int]:
    """By schedulerName how many waiting pods are for an unknown scheduler. O(pods + samples).

    ``waiting``: for each pod its schedulerName, and since when no scheduler has tried it; 0 if one has tried it.
    """
    # Unknown only if the service has run for a while, other schedulers have sent requests, and no name is hidden behind OTHERS (the
    # metric has a limited number of names).
    senders, until = asking_schedulers(facts), facts.now - SETTLED_SECONDS
    if not senders or OTHERS in senders or facts.total("process_start_time_seconds") > until:
        return {}
    return Counter(
        name for name, since in waiting if 0 < since < until and name not in senders and name not in profiles
    )


def examine_schedulers(facts: Facts, profiles: Collection[str] | None = None) -> list[Finding]:
    """All findings. ``profiles``: the profiles in the scheduler's configuration, None if it is not known. O(samples)."""
    # A standby answers no scheduler, so its counts of schedulers say nothing.
    if facts.samples is None or facts.leader:
        return []
    # With schedulers many several names are fine, and a silent one is suspicious. With one it is the other way round.
    senders = asking_schedulers(facts)
    many = facts.settings.schedulers == "many"
    return [*_unasked(facts), *(_silent(senders, profiles or ()) if many else _several(senders, profiles))]


def _unasked(facts: Facts) -> Iterator[Finding]:
    """Pods that wait for an unknown scheduler: its name is misspelt, or it does not run."""
    unasked = {} if facts.queue is None else facts.queue.unasked
    for name, pods in sorted(unasked.items(), key=lambda item: (-item[1], item[0]))[:_NAMED]:
        problem = f"{counted(pods, 'pod')} {agreeing(pods, 'waits', 'wait')} for a scheduler named {name}, which has tried no pod and sent no request"
        remedy = "correct their schedulerName, or run that scheduler, with the extender in its configuration"
        yield Finding("warning", _CHECK, problem, remedy)


def _several(senders: Collection[str], profiles: Collection[str] | None) -> Iterator[Finding]:
    """Requests of several schedulers while the setting ``schedulers`` is one: each of them uses room as if it were alone."""
    others = sorted(set(senders) - set(profiles or ()))
    remedy = "set schedulers: many, so that constraints and room are exact among them"
    if profiles is not None and others and len(senders) > 1:
        problem = f"schedulers is one, but requests came for pods of {listed(others, most=_NAMED)}, which no profile of this scheduler places"
        yield Finding("warning", _CHECK, problem, remedy)
    elif profiles is None and len(others) > 1:
        problem = (
            f"schedulers is one, but requests came for pods of {len(others)} schedulers ({listed(others, most=_NAMED)})"
        )
        yield Finding(
            "info", _CHECK, problem, f"nothing to do if they are profiles of one kube-scheduler; else {remedy}"
        )


def _silent(senders: Collection[str], profiles: Collection[str]) -> Iterator[Finding]:
    """Profiles that have sent no request while others have: they may place pods without the extender."""
    # With `schedulers: many` each of them must ask, or it gives away room that the others have assumed.
    silent = sorted(set(profiles) - set(senders))
    if senders and silent:
        problem = f"no request came for pods of {listed(silent, most=_NAMED)} since the service started, but for pods of {listed(sorted(senders), most=_NAMED)}"
        remedy = (
            "nothing to do if it had no pod to place; else its configuration lacks the extender, and room is used twice"
        )
        yield Finding("info", _CHECK, problem, remedy)
