"""What is wrong with a certificate, by the error of the client that rejects it: Go's text, or OpenSSL's."""

import re
from enum import StrEnum
from typing import Final


class CertificateFault(StrEnum):
    """Why a client rejects the certificate of a server."""

    EXPIRED = "expired"
    NOT_YET_VALID = "not yet valid"
    OTHER_CA = "other CA"
    OTHER_NAME = "other name"


# The first match counts: Go's text of both times is "has expired or is not yet valid", and then says which.
# https://pkg.go.dev/crypto/x509#CertificateInvalidError and the errors beside it
_TEXTS: Final = (
    (r"current time \S+ is before|failed: certificate is not yet valid", CertificateFault.NOT_YET_VALID),
    (r"certificate has expired", CertificateFault.EXPIRED),
    (r"unknown authority|unable to get (local )?issuer|self[- ]signed certificate", CertificateFault.OTHER_CA),
    (
        r"certificate is (not )?valid for|cannot validate certificate for|legacy Common Name|mismatch, certificate",
        CertificateFault.OTHER_NAME,
    ),
)


def certificate_fault(text: str) -> CertificateFault | None:
    """The fault that an error names; None where the error is about something else."""
    return next((fault for pattern, fault in _TEXTS if re.search(pattern, text)), None)
