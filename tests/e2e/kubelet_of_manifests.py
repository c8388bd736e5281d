"""Runs the pods of manifests as they are: their commands, the files of their volumes, and their accounts.

No network and no mount namespace is made. So paths of volumes become folders, and addresses become loopback addresses. The extender reads
its account in another folder, and kube-scheduler from a kubeconfig.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import yaml

from extender.simulator.json_objects import JsonObject, name_of
from tests.e2e.client import Api, pod_path
from tests.e2e.control_plane import ControlPlane
from tests.e2e.granting import kubeconfig_of_account
from tests.e2e.kubelet import Kubelet, host_of
from tests.e2e.port_forwarding import ForwardingKubelet
from tests.e2e.programs import Program

_SELECTOR = "app.kubernetes.io/name=placement-extender"
_EXTENDER = """
import sys
from extender.cli import files
from extender.cli.main import main
files.ACCOUNT_FOLDER = sys.argv.pop(1)
sys.exit(main())
"""


class KubeletOfManifests(Kubelet):
    """Runs Deployments, StatefulSets and Jobs of a namespace.

    ``service``: where a node reaches the extender's Service. ``port_forwards`` gets the address of each pod. ``failed``: what Jobs have
    printed that failed.
    """

    def __init__(
        self, api: Api, plane: ControlPlane, assets: Path, namespace: str, folder: Path, forwards: ForwardingKubelet
    ) -> None:
        super().__init__(api, _SELECTOR, namespace, {}, folder)
        self.service = ""
        self.failed: list[str] = []
        self._plane, self._assets, self._namespace, self._root = plane, assets, namespace, folder
        self._forwards = forwards
        self._jobs = set[str]()

    async def _look(self, found: JsonObject, session: aiohttp.ClientSession) -> None:
        is_job = any(owner["kind"] == "Job" for owner in found["metadata"].get("ownerReferences", ()))
        if not is_job:
            await super()._look(found, session)
        elif found["metadata"]["uid"] not in self._jobs:
            self._jobs.add(found["metadata"]["uid"])
            await self._run_to_its_end(found)

    async def _start(self, found: JsonObject) -> None:
        folder = self._root / name_of(found)
        if await self._mount(found, folder):  # else a Secret is missing: tried again
            await self._account(found, folder)
            await super()._start(found)

    def _program(self, found: JsonObject, address: str) -> Program:
        folder, container = self._root / name_of(found), found["spec"]["containers"][0]
        (port,) = [each["containerPort"] for each in container["ports"] if each["name"] in ("extender", "scheduler")]
        self._forwards.targets[f"{self._namespace}/{name_of(found)}"] = (host_of(address), port)
        environment = self._environment(found, container, address)
        command = self._command(container, environment, folder)
        self._adapt(folder, host_of(address))
        if "kube-scheduler" in command[0]:
            command += [f"--bind-address={host_of(address)}", *_access_of_scheduler(folder / "kubeconfig")]
        return Program(container["name"], command, folder, {"PYTHONUNBUFFERED": "1", **environment})

    async def _run_to_its_end(self, found: JsonObject) -> None:
        folder, container = self._root / name_of(found), found["spec"]["containers"][0]
        folder.mkdir()
        await self._bind(found)
        await self._account(found, folder)
        environment = self._environment(found, container, "")
        command = self._command(container, environment, folder)
        done = await asyncio.to_thread(
            subprocess.run, command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
        )
        self.failed += [done.stdout + done.stderr] if done.returncode else []
        phase = "Failed" if done.returncode else "Succeeded"
        await self._api.patch(f"{pod_path(found)}/status", {"status": {"phase": phase}})

    async def _account(self, found: JsonObject, folder: Path) -> None:
        name = found["spec"]["serviceAccountName"]
        file = await kubeconfig_of_account(self._api, self._plane, folder, name, self._namespace)
        account, kubeconfig = folder / "account", file.rename(folder / "kubeconfig")
        account.mkdir()
        token = yaml.safe_load(kubeconfig.read_text("utf-8"))["users"][0]["user"]["token"]
        files = {"token": token, "namespace": self._namespace, "ca.crt": self._plane.authority.read_text("utf-8")}
        for key, text in files.items():
            (account / key).write_text(text, "utf-8")

    async def _mount(self, found: JsonObject, folder: Path) -> bool:
        """Writes the files of all volumes. False if a Secret or ConfigMap is missing."""
        volumes = {each["name"]: each for each in found["spec"]["volumes"]}
        for mount in found["spec"]["containers"][0]["volumeMounts"]:
            files = await self._files_of(volumes[mount["name"]])
            if files is None:
                return False
            place = folder / mount["mountPath"].strip("/")
            place.mkdir(parents=True, exist_ok=True)
            for name, content in files.items():
                (place / name).touch(0o600)
                (place / name).write_bytes(content)
        return True

    async def _files_of(self, volume: JsonObject) -> dict[str, bytes] | None:
        kind = next(kind for kind in ("configMap", "secret", "emptyDir") if kind in volume)
        if kind == "emptyDir":
            return {}
        name = volume[kind].get("name") or volume[kind]["secretName"]
        path = f"/api/v1/namespaces/{self._namespace}/{kind.lower()}s/{name}"
        data = (await self._api.request("GET", path, allow=[404])).get("data")
        if data is None:
            return None
        if kind == "configMap":
            return {file: text.encode() for file, text in data.items()}
        items = volume[kind].get("items") or [{"key": key, "path": key} for key in data]
        if any(item["key"] not in data for item in items):
            return None
        return {item["path"]: base64.b64decode(data[item["key"]]) for item in items}

    def _environment(self, found: JsonObject, container: JsonObject, address: str) -> dict[str, str]:
        values = {
            "metadata.name": name_of(found),
            "metadata.namespace": self._namespace,
            "metadata.uid": found["metadata"]["uid"],
            "status.podIP": address,
        }
        api = urlsplit(self._plane.url)
        of_service = {"KUBERNETES_SERVICE_HOST": str(api.hostname), "KUBERNETES_SERVICE_PORT": str(api.port)}
        own = {each["name"]: values[each["valueFrom"]["fieldRef"]["fieldPath"]] for each in container["env"]}
        return of_service | own

    def _command(self, container: JsonObject, environment: dict[str, str], folder: Path) -> list[str]:
        words = [*container.get("command", ()), *container.get("args", ())]
        words = [re.sub(r"\$\((\w+)\)", lambda match: environment[match[1]], word) for word in words]
        words = [_moved(word, container, folder) for word in words]
        if container.get("command"):
            return [str(self._assets / words[0]), *words[1:]]
        return [sys.executable, "-c", _EXTENDER, str(folder / "account"), *words]

    def _adapt(self, folder: Path, host: str) -> None:
        """Addresses in the configurations, which a pod has by its network, and the access of kube-scheduler."""
        for file in (folder / "etc" / "placement-extender").glob("*.yaml"):
            document: dict[str, Any] = yaml.safe_load(_moved_paths(file.read_text("utf-8"), folder))
            if document["kind"] == "ExtenderConfiguration":
                port = document["server"]["bindAddress"].rpartition(":")[2]
                document["server"]["bindAddress"] = f"{host}:{port}"
            else:
                document["clientConnection"] = {"kubeconfig": str(folder / "kubeconfig")}
                lead_to(document, self.service)
            file.write_text(yaml.safe_dump(document), "utf-8")


def lead_to(document: dict[str, Any], service: str) -> None:
    """Lets kube-scheduler call the Service where a node reaches it; the certificate is checked for the name in the configuration."""
    (extender,) = document["extenders"]
    extender["tlsConfig"]["serverName"] = urlsplit(extender["urlPrefix"]).hostname
    extender["urlPrefix"] = service


def _access_of_scheduler(kubeconfig: Path) -> list[str]:
    return [f"--{what}-kubeconfig={kubeconfig}" for what in ("authentication", "authorization")]


def _moved(text: str, container: JsonObject, folder: Path) -> str:
    paths = [each["mountPath"] for each in container.get("volumeMounts", ())]
    return _replaced(text, paths, folder)


def _moved_paths(text: str, folder: Path) -> str:
    paths = [f"/etc/{each.name}" for each in (folder / "etc").iterdir()]
    return _replaced(text, paths, folder)


def _replaced(text: str, paths: list[str], folder: Path) -> str:
    """Each path below the folder, at once: a folder may have a path in its own."""
    if not paths:
        return text
    pattern = "|".join(re.escape(path) for path in sorted(paths, key=len, reverse=True))
    return re.sub(rf"({pattern})(?=/|$|\s)", lambda match: f"{folder}{match[1]}", text)
