"""The pages of the site by task, in the order of the navigation. tests/test_documents.py says which page is missing."""

from __future__ import annotations

from typing import Final

FIRST: Final = "README.md"
NAVIGATION: Final[dict[str, tuple[str, ...]]] = {
    "Install": (
        "deploy/README.md",
        "deploy/docs/install.md",
        "deploy/chart/README.md",
        "deploy/docs/image.md",
        "deploy/docs/policies.md",
        "deploy/docs/verify.md",
        "deploy/docs/secure.md",
        "deploy/docs/versions.md",
    ),
    "Platforms": (
        "deploy/platforms/eks.md",
        "deploy/platforms/gke.md",
        "deploy/platforms/aks.md",
        "deploy/platforms/kubeadm.md",
        "deploy/platforms/k3s.md",
        "deploy/platforms/argo-cd.md",
        "deploy/platforms/flux.md",
    ),
    "Operate": (
        "deploy/docs/emergency.md",
        "deploy/docs/monitor.md",
        "grafana/README.md",
        "grafana/runbook.md",
        "deploy/docs/troubleshoot.md",
        "deploy/docs/size.md",
        "deploy/docs/replicas.md",
        "deploy/docs/upgrade.md",
        "deploy/docs/remove.md",
    ),
    "How to": (
        "config/README.md",
        "config/policies/README.md",
        "config/how-to/explain.md",
        "config/how-to/what-if.md",
        "config/how-to/page.md",
        "config/how-to/record-and-replay.md",
        "config/how-to/simulate.md",
        "config/how-to/prove-the-switch.md",
        "config/how-to/move-from-kupid.md",
    ),
    "Explanation": (
        "config/explanation/modes.md",
        "config/explanation/placement.md",
        "config/explanation/preemption.md",
        "config/explanation/execution.md",
        "config/explanation/limits.md",
        "config/explanation/tenants.md",
        "config/explanation/quotas.md",
        "config/explanation/other-controllers.md",
        "config/explanation/what-happens-when.md",
        "config/measurements.md",
    ),
    "Reference": (
        "config/reference/http.md",
        "config/reference/admission.md",
        "config/reference/annotations.md",
        "config/reference/metrics.md",
        "config/reference/costs.md",
    ),
    "Project": ("CHANGELOG.md", "SECURITY.md", "CONTRIBUTING.md", "extender/README.md"),
}
PAGES: Final = (FIRST, *(page for pages in NAVIGATION.values() for page in pages))
