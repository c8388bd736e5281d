"""`extender ui` and `kubectl placement ui` as processes: how they begin, what a browser gets, and how they end."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import ssl
import stat
import sys
from asyncio.subprocess import PIPE, Process
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from extender.certificates.authority import CLIENT, SERVER, Authority
from extender.cli.kubectl import SECRET
from extender.server.request_checks import client_names
from extender.simulator.apiserver.kinds import SECRETS
from tests.cli.kubectl_plugin import Plugin, as_program
from tests.fakes import PATIENCE
from tests.pki import serving

KUBECTL = "import sys; from extender.cli.kubectl import main; sys.exit(main())"
README = (Path(__file__).resolve().parents[2] / "README.md").read_text("utf-8")
EXTENDER = "import sys; from extender.cli.main import main; sys.exit(main())"


@asynccontextmanager
async def started(program: str, *arguments: str, **environment: str) -> AsyncIterator[Process]:
    """The command as a process, which is killed where the test has not ended it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, *arguments, env={**os.environ, **environment}, stdout=PIPE, stderr=PIPE
    )
    try:
        async with asyncio.timeout(PATIENCE):
            yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def address_of(process: Process) -> str:
    assert process.stdout is not None
    assert process.stderr is not None
    line = (await process.stdout.readline()).decode().strip()
    assert line, (await process.stderr.read()).decode()
    return line


async def ended(process: Process) -> tuple[int, str]:
    """The exit code, and what is on standard error."""
    _, error = await process.communicate()
    return process.returncode or 0, error.decode()


def is_there(path: str) -> bool:
    return Path(path).exists()


def program_of(plugin: Plugin) -> tuple[Path, list[str]]:
    """The program in the place of kubectl, and its lines up to the one that waits."""
    path = plugin.calls.with_name("programs") / "kubectl"
    return path, path.read_text("utf-8").splitlines()[1:-1]


async def text_at(address: str) -> str:
    async with ClientSession() as http, http.get(address) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.text()


@asynccontextmanager
async def page() -> AsyncIterator[str]:
    """A service that serves a page alone."""

    async def index(_: web.Request) -> web.Response:
        return web.Response(text="the page")

    app = web.Application()
    app.router.add_get("/ui/", index)
    async with TestServer(app) as server:
        yield str(server.make_url("")).rstrip("/")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_it_serves_the_page_until_a_signal_and_ends_with_0(number: signal.Signals) -> None:
    heeding = f"import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL); {EXTENDER}"  # the tests may run with nohup
    async with page() as url, started(heeding, "ui", "--no-browser", "--url", url) as process:
        assert await text_at(await address_of(process)) == "the page"
        process.send_signal(number)
        assert await ended(process) == (0, "Ctrl-C ends it.\n")


async def test_with_nohup_it_outlives_its_terminal() -> None:
    ignoring = f"import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); {EXTENDER}"
    async with page() as url, started(ignoring, "ui", "--no-browser", "--url", url) as process:
        address = await address_of(process)
        process.send_signal(signal.SIGHUP)
        assert [await text_at(address) for _ in range(5)] == ["the page"] * 5
        process.send_signal(signal.SIGTERM)
        assert (await ended(process))[0] == 0


async def test_the_command_of_the_readme_shows_the_page_of_the_pod_that_it_finds(plugin: Plugin) -> None:
    plugin.add("extender-1", "kube-system")
    (typed,) = re.findall(r"^    kubectl placement (ui.*)$", README, re.MULTILINE)
    async with started(KUBECTL, *typed.split(), BROWSER="true %s") as process:
        address = await address_of(process)
        assert "<title>placement-extender</title>" in await text_at(address)
        assert '"pending":1' in await text_at(address.removesuffix("ui/") + "v1/overview")
        process.send_signal(signal.SIGINT)
        assert (await ended(process))[0] == 0
    assert "pod/extender-1 :8888" in plugin.forwarded()[0]


async def test_it_ends_with_the_port_forward_and_says_so(plugin: Plugin) -> None:
    plugin.add("extender-1", "kube-system")
    kubectl, lines = program_of(plugin)
    lost = "echo 'error: \\033[31mlost\\033[0m' >&2"
    as_program(kubectl, *lines, "sleep 2", lost, "exit 1")
    async with started(KUBECTL, "ui", "--no-browser") as process:
        await address_of(process)
        code, error = await ended(process)
    assert code == 1
    assert "kubectl placement: the port-forward to pod kube-system/extender-1 has ended\n" in error
    assert "kubectl placement: run the command again\n" in error
    assert "\033" not in error


async def test_kubectl_may_print_a_line_for_each_connection(plugin: Plugin) -> None:
    """Unread they would fill the pipe: 64 KiB, which the program writes here before it does anything else."""
    plugin.add("extender-1", "kube-system")
    kubectl, lines = program_of(plugin)
    done = kubectl.with_name("done")
    many = f"i=0; while [ $i -lt 4000 ]; do echo 'Handling connection for 12345'; i=$((i+1)); done; echo > {done}"
    as_program(kubectl, *lines, many, "exec sleep 600")
    async with started(KUBECTL, "ui", "--no-browser") as process:
        await address_of(process)
        while not done.exists():  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)


async def test_the_certificate_of_the_secret_is_shown_and_its_key_does_not_stay_on_disk(
    plugin: Plugin, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    authority = Authority.make("placement-extender", now, days=1)
    server = authority.issue("service", now, 1, SERVER, ("placement-extender.placement-extender.svc",))
    admin = authority.issue("placement-extender-admin", now, 1, CLIENT)
    files = {"ca.crt": authority.pair.certificate_pem, "tls.crt": admin.certificate_pem, "tls.key": admin.key_pem}
    (tmp_path / "ca.crt").write_bytes(files["ca.crt"])
    trust = serving(tmp_path, server)
    trust.load_verify_locations(tmp_path / "ca.crt")
    trust.verify_mode = ssl.CERT_REQUIRED

    async def names(request: web.Request) -> web.Response:
        return web.json_response(client_names(request))

    app = web.Application()
    app.router.add_get("/ui/", names)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=trust).start()
    try:
        kubectl = Path(os.environ["PATH"].partition(os.pathsep)[0], "kubectl")
        as_program(kubectl, f"echo 'Forwarding from 127.0.0.1:{runner.addresses[0][1]} -> 8888'", "exec sleep 600")
        plugin.add("extender-1", "kube-system", scheme="HTTPS")
        data = {name: b64encode(content).decode() for name, content in files.items()}
        metadata = {"name": SECRET, "namespace": "kube-system"}
        plugin.api.operations.create(
            SECRETS, {"kind": "Secret", "apiVersion": "v1", "metadata": metadata, "data": data}
        )
        folder = tmp_path / "tmp"
        folder.mkdir()
        async with started(KUBECTL, "ui", "--no-browser", TMPDIR=str(folder)) as process:
            assert await text_at(await address_of(process)) == '["placement-extender-admin"]'
            assert list(folder.rglob("*.key")) == []
            process.send_signal(signal.SIGTERM)
            assert (await ended(process))[0] == 0
        assert list(folder.iterdir()) == []
    finally:
        await runner.cleanup()


async def test_a_browser_gets_a_file_that_only_the_user_can_read_and_no_address(tmp_path: Path) -> None:
    """Every user of a machine can read the arguments of its programs."""
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    quiet = "exec sleep 20 >/dev/null 2>&1"
    read = f'cat "${{1#file://}}" > {opened}.part; ls -l "${{1#file://}}" >> {opened}.part'
    as_program(browser, read, f'echo "$1" >> {opened}.part', f"mv {opened}.part {opened}", quiet)
    async with page() as url, started(EXTENDER, "ui", "--url", url, BROWSER=f"{browser} %s") as process:
        address = await address_of(process)
        while not opened.exists():  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)
        content, listed, given = opened.read_text("utf-8").splitlines()
        assert f'content="0;url={address}"' in content
        assert listed.startswith(stat.filemode(stat.S_IFREG | 0o600))
        assert given.startswith("file:///")
        process.send_signal(signal.SIGINT)
        assert (await ended(process))[0] == 0
        assert not is_there(given.removeprefix("file://"))


async def test_without_a_display_no_browser_is_opened() -> None:
    displays = {"DISPLAY": "", "WAYLAND_DISPLAY": "", "BROWSER": ""}
    async with page() as url, started(EXTENDER, "ui", "--url", url, **displays) as process:
        await address_of(process)
        process.send_signal(signal.SIGINT)
        assert "no browser is opened: there is no display" in (await ended(process))[1]


async def test_a_port_that_is_taken_or_none_is_said() -> None:
    async with page() as url:
        port = url.rpartition(":")[2]
        async with started(EXTENDER, "ui", "--no-browser", "--url", url, "--port", port) as process:
            code, error = await ended(process)
            assert (code, error.startswith(f"extender: 127.0.0.1:{port}: ")) == (1, True), error
            assert "extender: give another --port, or none" in error
        for wrong in ("65536", "http", "-1"):
            async with started(EXTENDER, "ui", f"--port={wrong}") as process:
                code, error = await ended(process)
                assert (code, f'--port: expected a number from 0 to 65535, got "{wrong}"' in error) == (2, True)


async def test_a_service_without_the_page_is_said_before_a_browser_opens() -> None:
    async with TestServer(web.Application()) as server:
        url = str(server.make_url("")).rstrip("/")
        async with started(EXTENDER, "ui", "--url", url) as process:
            code, error = await ended(process)
    assert (code, f"extender: {url} answers 404" in error) == (1, True), error


@pytest.mark.usefixtures("plugin")
async def test_escapes_in_a_kubeconfig_and_in_an_answer_do_not_reach_the_terminal(
    tmp_path: Path,
) -> None:
    hostile = "\033]0;owned\007\033[2J"

    async def refuse(_: web.Request) -> web.Response:
        return web.json_response({"error": hostile}, status=403)

    app = web.Application()
    app.router.add_get("/ui/", refuse)
    (tmp_path / "hostile").write_text(f'{{"kind": "Config", "current-context": "{hostile!a}"}}'.replace("'", ""))
    async with TestServer(app) as server:
        url = str(server.make_url("")).rstrip("/")
        for arguments in (["--url", url], ["--kubeconfig", str(tmp_path / "hostile")], ["--context", hostile]):
            async with started(KUBECTL, "ui", *arguments) as process:
                code, error = await ended(process)
            assert (code, "\033" in error, "\007" in error, "owned" in error) == (1, False, False, True), error
