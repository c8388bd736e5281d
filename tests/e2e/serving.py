"""`extender serve` as a process of its own, with our own configuration file, and what can be asked of it from outside."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import yaml
from prometheus_client.parser import text_string_to_metric_families

from extender.simulator.json_objects import JsonObject
from tests.e2e.control_plane import CONFIG, HOST
from tests.e2e.programs import Program, our_command

_ANNOUNCED = re.compile(r'answering url="(https?://[^"]+)"')


class Extender:
    """The process. `url` is known once it has been started; `authority` signed its certificate, where it has one."""

    def __init__(
        self,
        folder: Path,
        kubeconfig: Path,
        settings: Mapping[str, Any] | None = None,
        authority: Path | None = None,
        environment: Mapping[str, str] | None = None,
        *,
        defaults: Path = CONFIG / "extender.yaml",
        port: int = 0,
    ) -> None:
        document = yaml.safe_load(defaults.read_text("utf-8"))
        _merge(document, {"kube": {"kubeconfig": str(kubeconfig)}})
        _merge(document, settings or {})
        file = folder / "extender.yaml"
        file.write_text(yaml.safe_dump(document), "utf-8")
        command = our_command("serve", "--config", str(file), "--bind-address", f"{HOST}:{port}")
        self.program = Program("extender", command, folder, {"PYTHONUNBUFFERED": "1", **(environment or {})})
        self.url = ""
        self._trust = ssl.create_default_context(cafile=str(authority)) if authority else True

    def __enter__(self) -> Self:
        try:
            self.program.log_file.unlink(missing_ok=True)
            self.program.start(self._is_announced)
        except BaseException:
            self.program.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.program.stop()

    async def is_ready(self) -> bool:
        """Whether it would answer questions: a standby, or a leader that takes over, is ready too, and says so."""
        async with self._connected() as session, session.get("/readyz?verbose") as answer:
            return answer.status == 200 and "leadership ok (" not in await answer.text()

    async def passing(self, pod: JsonObject, nodes: list[str]) -> set[str]:
        """The nodes that filter lets pass; what it says instead when it cannot answer is raised."""
        question = {"Pod": pod, "NodeNames": nodes}
        async with self._connected() as session, session.post("/filter", json=question) as answer:
            body = await answer.json(content_type=None)
        if answer.status != 200 or body["Error"]:
            raise AssertionError(f"filter answered {answer.status}: {body}")
        return set(body["NodeNames"])

    async def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric over the series that carry these labels; 0 when there is none."""
        return sum([value for found, value in await self.series(name) if labels.items() <= found.items()])

    async def series(self, name: str) -> list[tuple[dict[str, str], float]]:
        """The series of a metric: labels and value."""
        async with self._connected() as session, session.get("/metrics") as answer:
            page = await answer.text()
        families = text_string_to_metric_families(page)
        return [(each.labels, each.value) for family in families for each in family.samples if each.name == name]

    def _connected(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(self.url, connector=aiohttp.TCPConnector(ssl=self._trust))

    def _is_announced(self) -> bool:
        found = _ANNOUNCED.search(self.program.log())
        self.url = found[1] if found else ""
        return found is not None


def _merge(document: dict[str, Any], changes: Mapping[str, Any]) -> None:
    """Put values into a document, section by section."""
    for key, value in changes.items():
        if isinstance(value, Mapping) and isinstance(document.get(key), dict):
            _merge(document[key], value)
        else:
            document[key] = value
