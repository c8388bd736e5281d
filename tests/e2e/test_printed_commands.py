"""Each command that `extender doctor` and the runbook print is run against a real API server on which an overlay is installed.

Commands of the `extender` itself, and those that ask a running pod, run in tests/deploy.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.deploy.commands import VARIABLES, of_doctor, of_runbook
from tests.e2e.cluster import Cluster
from tests.e2e.removal import Shell, cert_manager, enabling_policies

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

KUBECTL: Final = [
    command
    for command in dict.fromkeys([*of_doctor(), *of_runbook()])
    if command.startswith("kubectl") and not command.startswith("kubectl placement")
]
OF_POLICY: Final = [command for command in KUBECTL if command.startswith("kubectl annotate cpodpol")]
OVERLAYS: Final[dict[str, dict[str, str]]] = {
    "service": {},
    "second-scheduler": {"NAMESPACE": "kube-system", "DEPLOYMENT": "placement-scheduler"},
}
# What an entry of the runbook is about: a pod of a workload, and nothing listens where its webhook is.
TENANT: Final = """
kubectl create namespace ${TENANT:?}
kubectl -n ${TENANT:?} create deployment ${WORKLOAD:?} --image=any
kubectl -n ${TENANT:?} run ${POD:?} --image=any
"""
# A policy of the runbook. Its webhook does not answer here, so the policy is created and changed before the webhook is.
WATCHING: Final = """
kubectl apply --server-side -f deploy/policies/crds.yaml
kubectl wait --for condition=established --timeout=60s -f deploy/policies/crds.yaml
kubectl apply -f - <<'END'
apiVersion: placement.extender.dev/v1alpha1
kind: ClusterPodSchedulingPolicy
metadata:
  name: POLICY
spec:
  podSelector: {}
  when: [Execution]
  execution: {}
END
"""


@pytest.mark.parametrize("name", OVERLAYS)
async def test_each_command_runs_as_printed(cluster: Cluster, tmp_path: Path, name: str) -> None:
    shell = Shell(cluster, tmp_path, **{**VARIABLES, "OVERLAY": name, **OVERLAYS[name]})
    async with cert_manager(cluster.api, shell):
        try:
            await shell.run(WATCHING.replace("POLICY", VARIABLES["POLICY"]))
            for command in OF_POLICY:
                await shell.run(command)
            await shell.run(enabling_policies(name))
            await shell.run(TENANT)
            # As the leader writes it.
            lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {}}
            namespace = OVERLAYS[name].get("NAMESPACE", VARIABLES["NAMESPACE"])
            await cluster.api.create({**lease, "metadata": {"name": "placement-extender", "namespace": namespace}})
            for command in [command for command in KUBECTL if command not in OF_POLICY]:
                await shell.run(command)
        finally:
            await shell.run("kubectl -n ${NAMESPACE:?} delete lease placement-extender --ignore-not-found")
            await shell.run("kubectl delete -k deploy/overlays/${OVERLAY:?} --ignore-not-found --wait=false")


async def test_a_role_by_itself_is_refused_and_the_printed_command_is_not(cluster: Cluster, tmp_path: Path) -> None:
    shell = Shell(cluster, tmp_path, **{**VARIABLES, "OVERLAY": "second-scheduler"})
    with pytest.raises(AssertionError, match=r"subjects\[0\].namespace: Required value"):
        await shell.run("kubectl apply -f deploy/base/writer.yaml")
    try:
        await shell.run("kubectl apply -k deploy/overlays/${OVERLAY:?}")
    finally:
        await shell.run("kubectl delete -k deploy/overlays/${OVERLAY:?} --ignore-not-found --wait=false")
        await shell.run("kubectl delete -f deploy/base/writer.yaml --ignore-not-found --wait=false")
