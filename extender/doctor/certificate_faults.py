"""What is wrong with a certificate, by the error of the client that rejects it (Go's text, or OpenSSL's), and its remedy at the webhook."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from extender.doctor.facts import RENEW
from extender.settings.policies import Webhook


class CertificateFault(StrEnum):
    """Why a client rejects the certificate of a server."""

    EXPIRED = "expired"
    NOT_YET_VALID = "not yet valid"
    OTHER_CA = "other CA"
    OTHER_NAME = "other name"


# The first match counts: Go's text of both times is "has expired or is not yet valid", and then says which.
# Our own check of readiness writes the texts at the beginning of a line.
# https://pkg.go.dev/crypto/x509#CertificateInvalidError and the errors beside it
_TEXTS: Final = (
    (
        r"current time \S+ is before|failed: certificate is not yet valid|^not valid before",
        CertificateFault.NOT_YET_VALID,
    ),
    (r"certificate has expired|^expired on", CertificateFault.EXPIRED),
    (r"unknown authority|unable to get (local )?issuer|self[- ]signed certificate", CertificateFault.OTHER_CA),
    (
        r"certificate is (not )?valid for|cannot validate certificate for|legacy Common Name|mismatch, certificate",
        CertificateFault.OTHER_NAME,
    ),
)


def certificate_fault(text: str) -> CertificateFault | None:
    """The fault that an error names; None where the error is about something else."""
    return next((fault for pattern, fault in _TEXTS if re.search(pattern, text)), None)


WEBHOOK_ADDRESS: Final = "policies.webhook.url, or service and serviceNamespace"
PROBLEMS_OF_WEBHOOK: Final[Mapping[CertificateFault, str]] = {
    CertificateFault.EXPIRED: "its certificate has expired",
    CertificateFault.NOT_YET_VALID: "its certificate is not valid yet",
    CertificateFault.OTHER_CA: "the caBundle of its configuration lacks the CA that signed its certificate",
    CertificateFault.OTHER_NAME: "its certificate lacks the name or address that is called",
}
_BY_THE_LEADER: Final = (
    "the leader makes and renews it: see its log, and whether it may write the Secret and both webhook configurations"
)
_RENEW: Final = f"{RENEW}; the service reloads the files by itself"
_BY_SOURCE: Final[Mapping[tuple[CertificateFault, str], str]] = {
    (CertificateFault.EXPIRED, "files"): _RENEW,
    (CertificateFault.EXPIRED, "cert-manager"): _RENEW,
    (CertificateFault.OTHER_CA, "files"): (
        "put the CA that signed certFile into policies.webhook.caFile: the leader writes it into caBundle"
    ),
    (CertificateFault.OTHER_CA, "cert-manager"): "see whether cert-manager's CA injector runs: it writes caBundle",
    (CertificateFault.OTHER_NAME, "own"): f"correct {WEBHOOK_ADDRESS}: the leader makes a certificate for that name",
    (CertificateFault.OTHER_NAME, "files"): (
        f"write a pair for that name into policies.webhook.certFile and keyFile, or correct {WEBHOOK_ADDRESS}"
    ),
    (CertificateFault.OTHER_NAME, "cert-manager"): "add that name to dnsNames of the Certificate",
}


def remedy_of_webhook(fault: CertificateFault, webhook: Webhook) -> str:
    """The remedy for a certificate of the webhook, by where it comes from."""
    if fault is CertificateFault.NOT_YET_VALID:
        return "synchronize the clocks of the API server and of the extender with NTP"
    return _BY_SOURCE.get((fault, webhook.certificates), _BY_THE_LEADER)
