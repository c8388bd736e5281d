"""Which API server to connect to, and with which account. A value only.

Separate from ``credentials``, which imports the Kubernetes client: the import takes half a second, which commands without
a connection save.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ACCOUNT_FOLDER: Final = "/var/run/secrets/kubernetes.io/serviceaccount"


@dataclass(frozen=True, slots=True)
class Access:
    """Which API server. The first that is set wins: ``host``, ``in_cluster``, ``kubeconfig``; else the default files.

    ``context`` empty means the kubeconfig's current one. ``host`` is a plain URL without credentials, for servers on
    loopback. ``account_folder`` holds ``token`` and ``ca.crt``.
    """

    host: str = ""
    in_cluster: bool = False
    kubeconfig: str = ""
    context: str = ""
    account_folder: str = ACCOUNT_FOLDER
