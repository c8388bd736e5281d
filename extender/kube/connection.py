"""Which apiserver to connect to, and as whom. A value only.

Apart from ``credentials``, which imports the Kubernetes client: that takes half a second, and commands that connect to
nothing do without.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ACCOUNT_FOLDER: Final = "/var/run/secrets/kubernetes.io/serviceaccount"


@dataclass(frozen=True, slots=True)
class Access:
    """Which apiserver. The first that is set wins: ``host``, ``in_cluster``, ``kubeconfig``; else the default files.

    ``context`` empty means the kubeconfig's current one. ``host`` is a plain URL without credentials, for servers on
    loopback. ``account_folder`` holds ``token`` and ``ca.crt``.
    """

    host: str = ""
    in_cluster: bool = False
    kubeconfig: str = ""
    context: str = ""
    account_folder: str = ACCOUNT_FOLDER
