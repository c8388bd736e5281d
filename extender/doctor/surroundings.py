"""Findings about what the service rests on: permissions, clocks, certificates and the Lease."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from extender.doctor.facts import Facts, Finding, Severity, ago

_SKEW_SECONDS: Final = 5.0
_EXPIRES_SOON: Final = 7 * 86400.0
_LEASE_SILENT_SECONDS: Final = 120.0


def examine_surroundings(facts: Facts) -> list[Finding]:
    """Everything wrong around the service. O(samples + permissions)."""
    return [*_permissions(facts), *_clocks(facts), *_certificates(facts), *_lease(facts)]


def _permissions(facts: Facts) -> Iterator[Finding]:
    if facts.account and facts.denied is not None:
        problem = f"permissions were looked up for {facts.account}, which may not be the service's account"
        yield Finding(
            "info", "account", problem, "name the service's account with --as, or its kubeconfig with --kubeconfig"
        )
    for one in facts.denied or ():
        severity: Severity = "error" if one.is_needed else "warning"
        remedy = f"grant it ({one.why}); deploy/base has the roles"
        yield Finding(severity, "permissions", f"the account may not {one}", remedy)


def _clocks(facts: Facts) -> Iterator[Finding]:
    for whose, ahead in facts.clocks.items():
        if abs(ahead) > _SKEW_SECONDS:
            way = "ahead of" if ahead > 0 else "behind"
            problem = f"the clock of {whose} is {abs(ahead):.0f} s {way} this one"
            yield Finding("warning", "clock", problem, "certificates and tokens are judged by it: have it set by NTP")


def _certificates(facts: Facts) -> Iterator[Finding]:
    for one in facts.series("extender_certificate_expiry_timestamp_seconds"):
        left = one.value - facts.now
        name = one.labels["name"]
        remedy = "renew it (`extender certs`, or cert-manager); the service takes the new files in by itself"
        if left <= 0:
            yield Finding("error", "certificate", f"the certificate {name} expired {ago(-left)} ago", remedy)
        elif left < _EXPIRES_SOON:
            yield Finding("warning", "certificate", f"the certificate {name} expires in {ago(left)}", remedy)
    for one in facts.series("extender_certificate_files_unusable"):
        if one.value:
            cause = one.labels["cause"]
            problem, remedy = _CAUSES.get(cause, (f"cannot be used ({cause})", "the service's log names the file"))
            yield Finding(
                "warning", "certificate", f"the certificate files on disk {problem}; the old ones stay in use", remedy
            )


# By the label `cause`: what is wrong with the files on disk, and the remedy.
_CAUSES: Final = {
    "unreadable": ("cannot be opened", "let the service's user read them"),
    "malformed": ("are not in PEM form", "write the certificate and its key in PEM form"),
    "password": ("hold a key with a password", "write the key without a password"),
    "mismatch": ("are a certificate and the key of another one", "write both files of one renewal"),
    "expired": ("hold a certificate that has expired", "renew it (`extender certs`, or cert-manager)"),
    "not_yet_valid": ("hold a certificate that is not valid yet", "look at the clocks, and at when it was made"),
    "no_authority": (
        "name a client CA that is no authority",
        "put the CA's own certificate into server.tls.clientCAFile",
    ),
    "refused": ("are refused by OpenSSL", "the service's log has OpenSSL's words; mostly a key that is too short"),
}


def _lease(facts: Facts) -> Iterator[Finding]:
    if facts.lease_holder is None:
        return
    if not facts.lease_holder:
        yield Finding("error", "lease", "no replica holds the Lease, so none answers", "look at the replicas' logs")
    elif facts.lease_age > _LEASE_SILENT_SECONDS:
        problem = f"{facts.lease_holder} holds the Lease and has not renewed it for {ago(facts.lease_age)}"
        remedy = "no replica runs, or none may update the Lease (deploy/base/lease.yaml)"
        yield Finding("error", "lease", problem, remedy)
