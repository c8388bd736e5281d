"""`python -m deploy.install`: an overlay in the cluster of kubectl's context, and out of it; `make deploy` and `make undeploy` call it.

It changes no file of the checkout: kubectl applies a copy of `deploy/` with the image, the tag of kube-scheduler that the API server has, and
the components that make the certificates in the cluster. What an operator has changed in the overlay is in the copy too, also another
image of kube-scheduler.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from deploy.release.image import NAME, ROOT, version

CERT_MANAGER: Final = "-cert-manager"  # ends the name of an overlay
_REFERENCE: Final = re.compile(
    r"(?P<name>[a-z0-9][\w.:/-]*?)(?::(?P<tag>\w[\w.-]*))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_PLACEHOLDER: Final = "set-the-version-of-your-cluster"  # the tag of kube-scheduler in the overlays
_OWN_NAME: Final = re.compile(rf"newName: (\S*\b{NAME})$", re.MULTILINE)
_OWN_COMPONENTS: Final = re.compile(r"^components:", re.MULTILINE)
_POLICIES: Final = {
    "": "policies: {enabled: true}\n",
    CERT_MANAGER: (
        "policies: {enabled: true, webhook: {certificates: cert-manager, certFile: /etc/placement-extender-webhook/tls.crt, "
        "keyFile: /etc/placement-extender-webhook/tls.key}}\n"
    ),
}


class InstallError(Exception):
    """Something is missing, or a command has failed; the message says what to do."""


@dataclass(frozen=True)
class Layout:
    """An overlay. ``then``: what its user does next. ``left``: what its removal leaves in kube-system, for `kubectl delete`."""

    namespace: str
    workloads: tuple[str, ...]
    then: str
    components: tuple[str, ...] = ("certificates",)
    configuration: str = ""  # the overlay that has its extender.yaml, if it is another one
    scheduler_names: tuple[str, ...] = ()
    left: tuple[tuple[str, ...], ...] = ()


_THREE: Final = tuple(f"placement-scheduler-{number}" for number in range(3))
_COPY_FILES: Final = """\
kube-scheduler is not part of this layout. Give it its client certificate and its configuration: deploy/docs/install.md,
"kube-scheduler of a service", has the commands, with namespace=placement-extender. Then it places all pods with the extender:

    kubectl run first --image=registry.k8s.io/pause:3.10
    kubectl get pod first -o wide"""

LAYOUTS: Final[Mapping[str, Layout]] = {
    "second-scheduler": Layout(
        "kube-system",
        ("deployment/placement-scheduler",),
        """\
Pods with this scheduler are placed by it now; all other pods are left to the default scheduler:

    kubectl run first --image=registry.k8s.io/pause:3.10 --overrides='{"spec": {"schedulerName": "placement-scheduler"}}'
    kubectl get pod first -o wide""",
        ("certificates", "token"),
        scheduler_names=("placement-scheduler",),
        left=(
            ("secret", "placement-extender-tls", "placement-extender-scheduler", "placement-extender-prometheus"),
            ("lease", "placement-scheduler"),
            ("configmaps", "-l", "app.kubernetes.io/part-of=placement-extender"),
        ),
    ),
    "service": Layout("placement-extender", ("deployment/placement-extender",), _COPY_FILES),
    "service-cert-manager": Layout(
        "placement-extender", ("deployment/placement-extender",), _COPY_FILES, (), "service"
    ),
    "schedulers": Layout(
        "placement-shared",
        ("deployment/placement-extender", "statefulset/placement-scheduler"),
        """\
Pods with one of the schedulers placement-scheduler-0 to placement-scheduler-2 are placed by it now:

    kubectl run first --image=registry.k8s.io/pause:3.10 --overrides='{"spec": {"schedulerName": "placement-scheduler-0"}}'
    kubectl get pod first -o wide

With POLICIES=1, `kubectl apply -f deploy/overlays/schedulers/policy.yaml` gives each new pod to one of them.""",
        scheduler_names=_THREE,
        left=(("lease", *_THREE),),
    ),
}


def printable(text: str) -> str:
    """Without what controls a terminal: a kubeconfig and an API server can have it in names and messages."""
    return "".join(char if char.isprintable() or char == "\n" else f"\\u{ord(char):04x}" for char in text)


def kubectl(*arguments: str) -> str:
    """What it prints, without escapes. InstallError with its last words where it fails."""
    program = shutil.which("kubectl")
    if program is None:
        raise InstallError("kubectl is not installed, or not on PATH; see https://kubernetes.io/docs/tasks/tools/")
    done = subprocess.run([program, *arguments], check=False, capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip() or done.stdout.strip()
        raise InstallError(f"kubectl {' '.join(arguments)}:\n{printable(said)}")
    return printable(done.stdout)


def layout_named(name: str) -> Layout:
    """A layout by the name of its overlay. InstallError for another name, with the way to what it means."""
    if name in LAYOUTS:
        return LAYOUTS[name]
    if name == "sidecar":
        raise InstallError("a sidecar is files on the machines of the control plane: deploy/docs/install.md, Sidecar")
    if name.endswith(CERT_MANAGER):
        raise InstallError(
            f"the overlay with cert-manager is LAYOUT=service. For {name.removesuffix(CERT_MANAGER)} take the chart, with tls.mode=certManager"
        )
    known = ", ".join(each for each in LAYOUTS if not each.endswith(CERT_MANAGER))
    raise InstallError(f"LAYOUT={name} is none of {known}")


def cluster() -> tuple[str, str]:
    """The context of kubectl, and the version of its API server, such as v1.36.0. InstallError where it does not answer."""
    try:
        said = json.loads(kubectl("version", "--output=json", "--request-timeout=20s"))
    except InstallError as error:
        reason = str(error).splitlines()[-1]
        raise InstallError(f"the cluster of kubectl's context does not answer, or there is none: {reason}") from error
    found = re.match(r"v\d+\.\d+\.\d+", said["serverVersion"]["gitVersion"])
    if found is None:
        raise InstallError(f"the API server has no version of a release: {said['serverVersion']['gitVersion']}")
    context = kubectl("config", "view", "--output=jsonpath={.current-context}").strip()
    return context or "of the pod", found[0]


def images(reference: str, names: Sequence[str]) -> list[dict[str, str]]:
    """The entries of a kustomization for the names of the extender's image. InstallError where the reference names no image of a registry."""
    match = _REFERENCE.fullmatch(reference)
    if match is None or "/" not in match["name"]:
        raise InstallError(
            f"IMAGE={reference or '...'} names no image of a registry. Set IMAGE=REGISTRY/{NAME}@sha256:..., or with a tag; "
            "`make image IMAGE=...` builds it, and deploy/docs/image.md pushes it"
        )
    chosen = {"digest": match["digest"]} if match["digest"] else {"newTag": match["tag"] or version()}
    return [{"name": name, "newName": match["name"], **chosen} for name in names]


def write(
    folder: Path, name: str, *, has_policies: bool, entries: Sequence[dict[str, str]] = (), scheduler_tag: str = ""
) -> None:
    """Write a kustomization into a folder: a copy of `deploy/`, and the overlay with its components and images.

    ``scheduler_tag``: for kube-scheduler, where its operator has chosen no image.
    """
    layout = LAYOUTS[name]
    copy = folder / "deploy"
    shutil.copytree(ROOT / "deploy", copy, ignore=shutil.ignore_patterns("chart", "__pycache__", "*.py", "*.md"))
    overlay = copy / "overlays" / name
    file = overlay / "kustomization.yaml"
    text = file.read_text("utf-8")
    if scheduler_tag:
        file.write_text(text := text.replace(_PLACEHOLDER, scheduler_tag), "utf-8")
    if not _OWN_COMPONENTS.search(text):  # else the overlay has what its operator has chosen
        certificates = CERT_MANAGER if name.endswith(CERT_MANAGER) else ""
        components = [*layout.components, *([f"policies{certificates}"] if has_policies else [])]
        listed = ", ".join(f"../../{component}" for component in components)
        file.write_text(f"{text}\ncomponents: [{listed}]\n", "utf-8")
        if has_policies:
            settings = copy / "overlays" / (layout.configuration or name) / "extender.yaml"
            settings.write_text(f"{settings.read_text('utf-8')}\n{_POLICIES[certificates]}", "utf-8")
    document = {"resources": [f"deploy/overlays/{name}"], "images": list(entries)}
    (folder / "kustomization.yaml").write_text(json.dumps(document), "utf-8")


def image_names() -> list[str]:
    """The names of the extender's image in the overlays: `placement-extender`, or what an operator has put there."""
    files = (ROOT / "deploy" / "overlays").glob("*/kustomization.yaml")
    return sorted({NAME, *(name for file in files for name in _OWN_NAME.findall(file.read_text("utf-8")))})


def deploy(name: str, reference: str, *, has_policies: bool, timeout: int) -> None:
    """Apply an overlay, and wait until its pods are ready. InstallError where a step fails."""
    layout = layout_named(name)
    images(reference, [])
    own = ROOT / "deploy" / "overlays" / name / "kustomization.yaml"
    if has_policies and _OWN_COMPONENTS.search(own.read_text("utf-8")):
        raise InstallError(
            f"{own.relative_to(ROOT)} has components of its own: add the component policies there, without POLICIES"
        )
    context, release = cluster()
    print(f"deploying overlays/{name} with {reference} to the cluster of context {context} ({release})", flush=True)
    before = _scheduler_image(layout)
    with TemporaryDirectory() as folder:
        entries = images(reference, image_names())
        write(Path(folder), name, has_policies=has_policies, entries=entries, scheduler_tag=release)
        if layout.components:  # the spec of a Job cannot be changed, and this one does nothing where nothing is due
            job = ("job", "placement-extender-certificates", "--ignore-not-found")
            kubectl("--namespace", layout.namespace, "delete", *job)
        print(kubectl("apply", "--kustomize", folder), end="", flush=True)
    if before and before != (image := _scheduler_image(layout)):
        print(
            f"kube-scheduler had {before}, and has {image} now; to keep another image, name it in {own.relative_to(ROOT)}"
        )
    if name.endswith(CERT_MANAGER):
        _name_address(layout)
    for workload in layout.workloads:
        print(f"waiting for {workload}, at most {timeout} s", flush=True)
        try:
            kubectl("--namespace", layout.namespace, "rollout", "status", workload, f"--timeout={timeout}s")
        except InstallError as error:
            raise InstallError(
                f"{workload} is applied and not ready: {str(error).splitlines()[-1]}\n"
                f"    kubectl -n {layout.namespace} get pods\n"
                f"    kubectl placement doctor --extender-namespace {layout.namespace}\nsay why"
            ) from error
    print(
        f"\nReady. {layout.then}\n\n"
        f"`kubectl placement doctor` checks the installation (deploy/docs/verify.md), and `make undeploy LAYOUT={name}` removes it."
    )


def _scheduler_image(layout: Layout) -> str:
    """The image of kube-scheduler in the cluster; empty where the layout has none, or is not installed."""
    if not layout.scheduler_names:
        return ""
    image = '--output=jsonpath={.spec.template.spec.containers[?(@.name=="kube-scheduler")].image}'
    return kubectl("--namespace", layout.namespace, "get", layout.workloads[-1], "--ignore-not-found", image).strip()


def _name_address(layout: Layout) -> None:
    """cert-manager puts the address of the Service into the certificate: kube-scheduler on the host's network calls it."""
    where = ("--namespace", layout.namespace)
    address = kubectl(*where, "get", "service", NAME, "--output=jsonpath={.spec.clusterIP}").strip()
    patch = json.dumps({"spec": {"ipAddresses": [address]}})
    print(
        kubectl(*where, "patch", "certificate", f"{NAME}-tls", "--type=merge", f"--patch={patch}"), end="", flush=True
    )


def undeploy(name: str, *, timeout: int) -> None:
    """Remove an overlay and what its replicas have made, in the order of deploy/docs/remove.md."""
    layout = layout_named(name)
    context, release = cluster()
    print(f"removing overlays/{name} from the cluster of context {context} ({release})", flush=True)
    for scheduler in layout.scheduler_names:
        wait = f"spec.nodeName=,spec.schedulerName={scheduler}"
        if pods := kubectl("get", "pods", "--all-namespaces", f"--field-selector={wait}", "--output=name").split():
            print(
                f"{len(pods)} pods with schedulerName {scheduler} have no node, and no scheduler will place them",
                flush=True,
            )
    binding = f"placement-extender-webhook-{name}"
    has_policies = bool(kubectl("get", "clusterrolebinding", binding, "--ignore-not-found", "--output=name"))
    if has_policies:
        _remove_policies(binding, timeout)
    with TemporaryDirectory() as folder:
        write(Path(folder), name, has_policies=has_policies)
        said = kubectl(
            "delete", "--kustomize", folder, "--ignore-not-found", "--cascade=foreground", f"--timeout={timeout}s"
        )
        print(said, end="", flush=True)
    for arguments in layout.left:
        said = kubectl("--namespace", "kube-system", "delete", *arguments, "--ignore-not-found")
        print(said, end="", flush=True)
    if "service" in name:
        print("If a kube-scheduler still has the extender in its configuration, remove it there.")


def _remove_policies(binding: str, timeout: int) -> None:
    """The leader takes its gate off the pods of deleted policies; then the webhooks go, after the leader's permission."""
    kinds = "podschedulingpolicies.placement.extender.dev,clusterpodschedulingpolicies.placement.extender.dev"
    print(kubectl("delete", "--all", "--all-namespaces", kinds), end="", flush=True)
    gates = "--output=jsonpath={.items[*].spec.schedulingGates[*].name}"
    ends_at = time.monotonic() + timeout
    while "placement.extender.dev/" in kubectl(
        "get", "pods", "--all-namespaces", "--field-selector=spec.nodeName=", gates
    ):
        if time.monotonic() > ends_at:
            raise InstallError(
                f"after {timeout} s pods still have the extender's gate; nothing but policies is removed yet: run it again"
            )
        time.sleep(1)
    kubectl("delete", "clusterrolebinding", binding, "--ignore-not-found")
    webhooks = "mutatingwebhookconfiguration,validatingwebhookconfiguration"
    print(kubectl("delete", webhooks, NAME, "--ignore-not-found"), end="", flush=True)


def main(arguments: Sequence[str]) -> int:
    """Deploy or undeploy. 1 where a step fails."""
    parser = argparse.ArgumentParser(prog="python -m deploy.install", description="Deploy or remove an overlay.")
    parser.add_argument("step", choices=["deploy", "undeploy"])
    parser.add_argument("--image", default="", help="REGISTRY/placement-extender, with a digest or a tag")
    parser.add_argument("--layout", default="second-scheduler", help=f"one of {', '.join(LAYOUTS)}")
    parser.add_argument("--policies", action="store_true", help="with scheduling policies and their webhook")
    parser.add_argument("--timeout", type=int, default=300, help="how many seconds to wait for the pods (default 300)")
    asked = parser.parse_args(arguments)
    try:
        if asked.step == "deploy":
            deploy(asked.layout, asked.image, has_policies=asked.policies, timeout=asked.timeout)
        else:
            undeploy(asked.layout, timeout=asked.timeout)
    except InstallError as error:
        print(f"make {asked.step}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
