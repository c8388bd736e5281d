"""A webhook that the API server cannot use: what users see, what doctor says, and what ends it.

1. The process hangs (SIGSTOP): the kernel accepts connections, and no answer comes. deploy/docs/emergency.md lets pods be created.
2. Another process accepts connections and never answers, while the extender works. It sees which pods wait for it.
3. The certificate has another name, has expired, or is signed by another authority.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from extender.certificates.authority import SERVER, Authority
from extender.simulator.json_objects import JsonObject
from tests.deploy.policies.examples import policy
from tests.e2e.client import path_of
from tests.e2e.cluster import Cluster, eventually_ready, served
from tests.e2e.control_plane import EXTENDER_ACCOUNT, HOST
from tests.e2e.policing import MUTATING, PODS, VALIDATING, Policed, db_pod, installed, policed, with_policies
from tests.e2e.programs import free_ports
from tests.e2e.removal import Shell, commands
from tests.e2e.wrong_set_ups import doctor
from tests.fakes import PATIENCE

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TIMEOUT = 2
EXEMPT = "/api/v1/namespaces/kube-system/pods"
SILENT = "the API server cannot call the webhook: no answer comes in 2s, for which each pod waits; each pod is "
THEN = {"Ignore": "created without policies", "Fail": "refused"}


async def created(found: Policed, name: str, path: str = PODS) -> tuple[JsonObject, float]:
    """The pod, or why there is none, and after how many seconds."""
    wanted = db_pod(name)
    wanted["metadata"]["namespace"] = path.split("/")[-2]
    begin = time.monotonic()
    answer = await found.api.request("POST", path, wanted, allow=[500])
    return answer, time.monotonic() - begin


async def said(found: Policed, *arguments: str) -> list[dict[str, str]]:
    """What doctor says of the webhook to an administrator, who may make a dry run of a policy."""
    access = ("--kubeconfig", str(found.cluster.plane.kubeconfig), "--as", EXTENDER_ACCOUNT)
    findings = await doctor("--url", found.extender.url, *access, *arguments)
    return [one for one in findings if one["check"] == "webhook"]


async def until_right(found: Policed) -> None:
    """Return once doctor says nothing more of the webhook."""
    async with asyncio.timeout(PATIENCE):
        while await said(found):  # noqa: ASYNC110 -- no event across processes
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("failure_policy", THEN)
async def test_while_the_extender_hangs_pods_wait_and_the_commands_of_the_emergency_end_it(
    cluster: Cluster, tmp_path: Path, failure_policy: str
) -> None:
    shell = Shell(cluster, tmp_path)
    async with policed(cluster, failurePolicy=failure_policy, timeout=f"{TIMEOUT}s") as found:
        await found.apply(policy("PodSchedulingPolicy", schedulerName="ours"))
        answer, usual = await created(found, "before")
        assert answer["spec"]["schedulerName"] == "ours"

        found.extender.program.send(signal.SIGSTOP)
        answer, seconds = await created(found, "meanwhile")
        assert seconds >= TIMEOUT, "it waits for an answer until the API server's timeout"
        if failure_policy == "Fail":
            assert 'failed calling webhook "mutate.policies.placement.extender.dev"' in answer["message"]
            assert "context deadline exceeded" in answer["message"]
        else:
            assert answer["spec"]["schedulerName"] == "default-scheduler"
        exempt, quick = await created(found, "exempt", EXEMPT)
        assert exempt["kind"] == "Pod"
        print(f"{failure_policy}: {usual:.2f} s before, {seconds:.2f} s while it hangs, exempt {quick:.2f} s")  # noqa: T201 -- shown by -s

        # Its settings come from its file, because it does not answer doctor either.
        findings = await said(found, "--config", str(tmp_path / "extender.yaml"))
        (called,) = [one for one in findings if one["problem"].startswith("the API server cannot call")]
        assert called["severity"] == "error"
        assert called["problem"].startswith(f"{SILENT}{THEN[failure_policy]}: ")
        assert called["remedy"].endswith("; if there is none, the process hangs: restart it")

        await shell.run(commands("1. The webhook"))
        async with asyncio.timeout(PATIENCE):
            number = 0
            while True:  # the API server learns of it by a watch
                answer, seconds = await created(found, f"after-{(number := number + 1)}")
                if seconds < TIMEOUT:
                    break
        assert answer["spec"]["schedulerName"] == "default-scheduler"

        # The leader may not create them again, because its binding is gone too.
        found.extender.program.send(signal.SIGCONT)
        async with asyncio.timeout(PATIENCE):
            while not await found.extender.metric("extender_last_api_write_timestamp_seconds", result="forbidden"):  # noqa: ASYNC110 -- as above
                await asyncio.sleep(0.1)
        for path in (MUTATING, VALIDATING):
            assert (await found.api.request("GET", path, allow=[404]))["kind"] == "Status"

        # Back to normal: what the overlay applies.
        for document in await served(found.api, installed()):
            await found.api.request("POST", path_of(document), document, allow=[409])
        await found.until_kept()
        await until_right(found)
        answer, _ = await created(found, "again")
        assert answer["spec"]["schedulerName"] == "ours"


@asynccontextmanager
async def silent() -> AsyncIterator[tuple[str, list[object]]]:
    """The URL of a process that accepts connections and never answers, and the connections."""
    accepted: list[Any] = []
    server = await asyncio.start_server(lambda _reader, writer: accepted.append(writer), HOST, 0)
    try:
        yield f"https://{HOST}:{server.sockets[0].getsockname()[1]}", accepted
    finally:
        server.close()
        for writer in accepted:
            writer.close()


async def test_a_process_that_never_answers_is_named_and_exempt_namespaces_do_not_ask_it(cluster: Cluster) -> None:
    async with silent() as (url, accepted), policed(cluster, url=url, timeout=f"{TIMEOUT}s") as found:
        answer, seconds = await created(found, "missed")
        assert answer["kind"] == "Pod"
        assert seconds >= TIMEOUT
        asked = len(accepted)
        assert asked
        exempt, _ = await created(found, "exempt", EXEMPT)
        assert (exempt["kind"], len(accepted)) == ("Pod", asked), "the API server connects for no exempt pod"
        (called,) = await said(found)
        assert called["problem"].startswith(f"{SILENT}created without policies: ")
        assert "context deadline exceeded" in called["problem"]
        assert called["remedy"].startswith("let the API server connect to policies.webhook.url: look for a firewall")


class Files:
    """The files of `certificates: files`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._now = datetime.now(UTC)
        self._ours, self._other = (Authority.make(name, self._now - timedelta(days=30), 60) for name in ("a", "b"))
        self.settings = {f"{part}File": str(folder / f"webhook.{part}") for part in ("cert", "key", "ca")}

    def write(self, name: str = HOST, days_ago: float = 0.0, *, is_ours: bool = True) -> None:
        """A certificate for a day, and the authority for caBundle."""
        pair = self._ours.issue("webhook", self._now - timedelta(days=days_ago), 1, SERVER, [name])
        trusted = (self._ours if is_ours else self._other).pair.certificate_pem
        for part, content in (("cert", pair.certificate_pem), ("key", pair.key_pem), ("ca", trusted)):
            (self._folder / f"webhook.{part}").write_bytes(content)


CANNOT = "the API server cannot call the webhook: "
WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "another name": (
        {"name": "elsewhere.example"},
        f"{CANNOT}its certificate lacks the name or address that is called; each pod is created without policies: ",
        "write a pair for that name into policies.webhook.certFile and keyFile",
    ),
    "expired": (
        {"days_ago": 3.0},
        f"{CANNOT}its certificate has expired; each pod is created without policies: ",
        "renew it (`extender certs",
    ),
    "another authority": (
        {"is_ours": False},
        "WebhookConfiguration placement-extender does not verify the serving certificate",
        "put the CA that signed certFile into policies.webhook.caFile",
    ),
}


@pytest.mark.parametrize("name", WRONG)
async def test_a_certificate_that_the_api_server_rejects_is_no_firewall_and_the_right_files_end_it(
    cluster: Cluster, tmp_path: Path, name: str
) -> None:
    change, problem, remedy = WRONG[name]
    files = Files(tmp_path)
    # From the beginning: the API server keeps a connection, and looks at no other certificate until it ends.
    files.write(**change)
    (port,) = free_ports(1)
    url = f"https://{HOST}:{port}"
    webhook = {"bindAddress": f"{HOST}:{port}", "url": url, "certificates": "files", **files.settings}
    settings = {"preemption": {"mode": "off"}, "policies": {"enabled": True, "webhook": webhook}}
    async with with_policies(cluster.api):
        with cluster.extender(settings) as extender:
            found = Policed(cluster, extender, url)
            await found.until_kept()
            findings = await said(found)
            assert findings
            assert all(problem in one["problem"] and remedy in one["remedy"] for one in findings), findings
            assert all("firewall" not in one["remedy"] for one in findings)
            files.write()  # the service reads them within seconds
            await until_right(found)
            await eventually_ready(extender)
            await found.apply(policy("PodSchedulingPolicy", schedulerName="ours"))
            answer, _ = await created(found, "right")
            assert answer["spec"]["schedulerName"] == "ours"
