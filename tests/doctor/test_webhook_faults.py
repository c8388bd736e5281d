"""A webhook that the API server cannot use: doctor names the cause, its remedy is applied, and doctor finds nothing more.

The API server is the simulator's, which calls the webhook by HTTPS as a real one does. tests/e2e has the same with real programs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from extender.certificates.authority import SERVER, Authority, Pair
from extender.doctor.certificate_faults import CertificateFault, certificate_fault
from extender.doctor.policies import examine_policies
from extender.settings.configuration import Settings
from extender.simulator.apiserver.kinds import NAMESPACES
from extender.tasks.webhook import keeper
from tests.cli.doctor_set_up import WEBHOOK, Setup, installed_policies, kept, set_up, with_policies
from tests.doctor.facts import settings
from tests.doctor.test_policies import policed
from tests.fakes import PATIENCE
from tests.simulator.plain import namespace, pod

NAME = f"{WEBHOOK}.default.svc"
CANNOT = "the API server cannot call the webhook: "
Findings = list[tuple[str, str]]


class Files:
    """The files of `certificates: files`. All is right until a test writes otherwise."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.now = datetime.now(UTC)
        self.authority, self.other = (Authority.make(name, self.now, 10) for name in ("ours", "other"))
        self.put(self.pair(NAME))
        self.trust(self.authority)

    def pair(self, *names: str, begins: float = 0.0) -> Pair:
        """A certificate of our authority for a day; ``begins``: in days from now."""
        return self.authority.issue("webhook", self.now + timedelta(days=begins), 1, SERVER, names)

    def put(self, pair: Pair) -> None:
        (self._folder / "webhook.crt").write_bytes(pair.certificate_pem)
        (self._folder / "webhook.key").write_bytes(pair.key_pem)

    def trust(self, authority: Authority) -> None:
        (self._folder / "webhook.ca").write_bytes(authority.pair.certificate_pem)

    def policies(self) -> dict[str, Any]:
        """The section of the configuration."""
        given, files = with_policies(), {"certFile": "crt", "keyFile": "key", "caFile": "ca"}
        paths = {field: str(self._folder / f"webhook.{end}") for field, end in files.items()}
        return given | {"webhook": given["webhook"] | {"certificates": "files", "timeout": "1s", **paths}}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.setattr(keeper, "POLL_SECONDS", 0.05)
    return Files(tmp_path)


@asynccontextmanager
async def installed(folder: Path, files: Files) -> AsyncIterator[Setup]:
    """A service with policies, once its leader has written both configurations."""
    async with set_up(folder, pods=installed_policies(), policies=files.policies()) as setup:
        await kept(setup)
        yield setup


async def said_of_the_webhook(setup: Setup) -> Findings:
    _, document = await setup.doctor()
    return [(one["problem"], one["remedy"]) for one in document["findings"] if one["check"] == "webhook"]


async def until_nothing_is_said(setup: Setup) -> None:
    """Return once doctor finds no fault of the webhook: the service reads changed files by itself."""
    async with asyncio.timeout(PATIENCE):
        while await said_of_the_webhook(setup):  # noqa: ASYNC110 -- doctor asks, it is told of nothing
            await asyncio.sleep(0.05)


@dataclass(frozen=True)
class Row:
    """A wrong certificate. The remedy is to write the right files, as its text says."""

    wrong: Callable[[Files], None]
    problem: str
    remedy: str


ROWS = {
    "another name": Row(
        lambda files: files.put(files.pair("elsewhere.default.svc")),
        f"{CANNOT}its certificate lacks the name or address that is called; each pod is created without policies",
        "write a pair for that name into policies.webhook.certFile and keyFile",
    ),
    "expired": Row(
        lambda files: files.put(files.pair(NAME, begins=-3)),
        f"{CANNOT}its certificate has expired; each pod is created without policies",
        "renew it (`extender certs",
    ),
    "not yet valid": Row(
        lambda files: files.put(files.pair(NAME, begins=3)),
        f"{CANNOT}its certificate is not valid yet; each pod is created without policies",
        "synchronize the clocks",
    ),
    "another authority": Row(
        lambda files: files.trust(files.other),
        "WebhookConfiguration placement-extender does not verify the serving certificate",
        "put the CA that signed certFile into policies.webhook.caFile",
    ),
}


@pytest.mark.parametrize("name", ROWS)
async def test_a_certificate_that_the_api_server_rejects_is_named_and_the_right_files_end_it(
    name: str, tmp_path: Path, files: Files
) -> None:
    row = ROWS[name]
    row.wrong(files)
    async with installed(tmp_path, files) as setup:
        found = await said_of_the_webhook(setup)
        assert found
        assert all(row.problem in problem and row.remedy in remedy for problem, remedy in found), found
        files.put(files.pair(NAME))
        files.trust(files.authority)
        await until_nothing_is_said(setup)


# -- no certificate is wrong, and no answer comes


@asynccontextmanager
async def silent() -> AsyncIterator[tuple[str, int]]:
    """The address of a process that accepts connections and never answers."""
    held: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _reader, writer: held.append(writer), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[:2]
    finally:
        server.close()
        for writer in held:
            writer.close()


async def test_a_webhook_that_never_answers_is_named_and_is_right_once_calls_reach_the_extender(
    tmp_path: Path, files: Files
) -> None:
    place = ("default", WEBHOOK)
    async with installed(tmp_path, files) as setup, silent() as address:
        services = setup.api.admission.services
        right, services[place] = services[place], address
        ((problem, remedy),) = await said_of_the_webhook(setup)
        assert problem.startswith(f"{CANNOT}no answer comes in 1s, for which each pod waits; each pod is created")
        assert problem.endswith("context deadline exceeded")
        assert "look for a firewall or NetworkPolicy in between; if there is none, the process hangs" in remedy
        services[place] = right
        assert await said_of_the_webhook(setup) == []


@pytest.mark.parametrize("failure_policy", ["Ignore", "Fail"])
async def test_pods_are_missed_or_refused_while_the_webhook_never_answers_and_exempt_namespaces_do_not_ask_it(
    tmp_path: Path, files: Files, failure_policy: str
) -> None:
    ours = files.policies()
    ours["webhook"]["failurePolicy"] = failure_policy
    async with (
        set_up(tmp_path, pods=installed_policies(), policies=ours) as setup,
        silent() as address,
        aiohttp.ClientSession(setup.api.url) as user,
    ):
        await kept(setup)
        setup.api.store.put(NAMESPACES, namespace("kube-system", **{"kubernetes.io/metadata.name": "kube-system"}))
        admission = setup.api.admission
        admission.services["default", WEBHOOK] = address

        async def create(namespace: str) -> str:
            async with user.post(f"/api/v1/namespaces/{namespace}/pods", json=pod("new", namespace)) as answer:
                return str((await answer.json()).get("message", ""))

        error = await create("default")
        assert ("context deadline exceeded" in error) == (failure_policy == "Fail"), error
        assert sorted(admission.missed_pods) == ([] if error else ["default/new"])
        calls = sum(admission.calls.values())
        assert await create("kube-system") == ""
        assert sum(admission.calls.values()) == calls, "no webhook is called"


async def test_nothing_listens_where_the_api_server_calls(tmp_path: Path, files: Files) -> None:
    place = ("default", WEBHOOK)
    async with installed(tmp_path, files) as setup:
        async with silent() as address:
            pass  # nothing listens there any more
        services = setup.api.admission.services
        right, services[place] = services[place], address
        ((problem, remedy),) = await said_of_the_webhook(setup)
        assert problem.startswith(f"{CANNOT}nothing listens at port 0 of the extender's pods; each pod is created")
        assert remedy.startswith("see whether the extender's pods run, and correct policies.webhook.url, or service")
        services[place] = right
        assert await said_of_the_webhook(setup) == []


# -- the words of a real API server, and where certificates come from

GO = 'failed calling webhook "validate": failed to call webhook: Post "https://a.b.svc:443/validate?timeout=3s": '
X509 = f"{GO}tls: failed to verify certificate: x509: "
TEXTS = {
    f"{X509}certificate has expired or is not yet valid: current time 2026-03-01T00:00:00Z is after 2026-02-01T00:00:00Z": CertificateFault.EXPIRED,
    f"{X509}certificate has expired or is not yet valid: current time 2026-03-01T00:00:00Z is before 2026-04-01T00:00:00Z": CertificateFault.NOT_YET_VALID,
    f"{X509}certificate signed by unknown authority": CertificateFault.OTHER_CA,
    f"{X509}certificate is valid for extender.kube-system.svc, not a.b.svc": CertificateFault.OTHER_NAME,
    f"{X509}certificate is not valid for any names, but wanted to match a.b.svc": CertificateFault.OTHER_NAME,
    f"{X509}cannot validate certificate for 10.0.0.7 because it doesn't contain any IP SANs": CertificateFault.OTHER_NAME,
    f"{X509}certificate relies on legacy Common Name field, use SANs instead": CertificateFault.OTHER_NAME,
    "certificate verify failed: certificate has expired (_ssl.c:1)": CertificateFault.EXPIRED,
    "certificate verify failed: certificate is not yet valid (_ssl.c:1)": CertificateFault.NOT_YET_VALID,
    "certificate verify failed: self-signed certificate in certificate chain (_ssl.c:1)": CertificateFault.OTHER_CA,
    "certificate verify failed: unable to get local issuer certificate (_ssl.c:1)": CertificateFault.OTHER_CA,
    "certificate verify failed: Hostname mismatch, certificate is not valid for 'a'. (_ssl.c:1)": CertificateFault.OTHER_NAME,
    "certificate verify failed: IP address mismatch, certificate is not valid for '10.0.0.7'. (_ssl.c:1)": CertificateFault.OTHER_NAME,
    f"{GO}context deadline exceeded": None,
    f"{GO}dial tcp 10.0.0.7:9443: i/o timeout": None,
}


@pytest.mark.parametrize(("text", "fault"), TEXTS.items(), ids=[text[-40:] for text in TEXTS])
def test_an_error_is_of_one_sort(text: str, fault: CertificateFault | None) -> None:
    assert certificate_fault(text) is fault


def of_source(source: str, **webhook: str) -> Settings:
    files = {} if source == "own" else {"certFile": "/a.crt", "keyFile": "/a.key"}
    return settings(policies={"enabled": True, "webhook": {"certificates": source, **files, **webhook}})


REMEDIES: dict[str, tuple[str, Settings, str, str]] = {
    "a firewall": (f"{GO}context deadline exceeded", of_source("own"), "no answer comes in 3s", "port 9443 of the"),
    "a firewall before a URL": (
        f"{GO}dial tcp 10.0.0.7:9443: i/o timeout",
        of_source("own", url="https://10.0.0.7:9443", failurePolicy="Fail"),
        "no answer comes in 3s, for which each pod waits; each pod is refused",
        "let the API server connect to policies.webhook.url",
    ),
    "another program": (
        "failed calling webhook: the server could not find the requested resource",
        of_source("own", url="https://10.0.0.7:9443"),
        "another program answers at policies.webhook.url",
        "without a path",
    ),
    "a name of the leader's certificate": (
        f"{X509}certificate is valid for a, not b",
        of_source("own"),
        "lacks the name",
        "correct policies.webhook.url, or service and serviceNamespace: the leader makes a certificate",
    ),
    "a name of cert-manager": (
        f"{X509}certificate is valid for a, not b",
        of_source("cert-manager"),
        "lacks the name",
        "add that name to dnsNames",
    ),
    "a CA of the leader": (f"{X509}unknown authority", of_source("own"), "lacks the CA", "see its log, and whether"),
    "a CA of files": (f"{X509}unknown authority", of_source("files"), "lacks the CA", "policies.webhook.caFile"),
    "a CA of cert-manager": (f"{X509}unknown authority", of_source("cert-manager"), "lacks the CA", "CA injector"),
    "an expired one of the leader": (
        f"{X509}certificate has expired or is not yet valid: current time b is after a",
        of_source("own"),
        "has expired",
        "the leader makes and renews it",
    ),
    "an expired one of cert-manager": (
        f"{X509}certificate has expired or is not yet valid: current time b is after a",
        of_source("cert-manager"),
        "has expired",
        "or cert-manager)",
    ),
}


@pytest.mark.parametrize(("text", "ours", "problem", "remedy"), REMEDIES.values(), ids=REMEDIES)
def test_the_remedy_is_for_the_cause_and_for_where_the_certificate_comes_from(
    text: str, ours: Settings, problem: str, remedy: str
) -> None:
    facts = replace(policed(call_fault=text), settings=ours)
    (found,) = examine_policies(facts)
    assert problem in found.problem
    assert remedy in found.remedy
    assert ("firewall" in found.remedy) == ("no answer" in found.problem)
