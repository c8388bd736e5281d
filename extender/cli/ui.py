"""`extender ui`: shows the page of a service in a browser, until Ctrl-C.

The page is served on loopback of this machine, below a random path, and the client certificate of `--cert-file` is shown to the
service. `kubectl placement ui` finds the service, and makes a port-forward to it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import webbrowser
from collections.abc import Callable
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Final

from extender.cli.files import has_display
from extender.cli.main import CommandError, Commands, say
from extender.cli.service_client import ServiceError, add_trust, fetch, tls_context, trust_of
from extender.compose.process import run_on_loop, until_signal
from extender.server.page.proxy import HOST, PageProxy

_URL: Final = "http://127.0.0.1:8888"
_MOST_PORT: Final = 65535
_LOOK_SECONDS: Final = 0.5


def add_parser(commands: Commands) -> None:
    """Adds the parser."""
    parser = commands.add_parser(
        "ui", help="show the page of the service in a browser", examples=["", "--no-browser --port 8080"]
    )
    parser.add_argument("--url", default="", help=f"URL of the running service ({_URL})")
    parser.add_argument("--port", metavar="PORT", default="0", help="port on loopback of this machine (a free one)")
    parser.add_argument("--no-browser", action="store_true", help="print the address, and open no browser")
    add_trust(parser)
    parser.set_defaults(run=run, wrong_usage=parser.error, ended=_never, drop_files=_nothing)


def run(arguments: argparse.Namespace) -> int:
    """Serves until Ctrl-C. Returns 0; a port-forward that ends before is an error."""
    if not arguments.port.isdecimal() or int(arguments.port) > _MOST_PORT:
        arguments.wrong_usage(f'--port: expected a number from 0 to {_MOST_PORT}, got "{arguments.port}"')
    url, trust = arguments.url or _URL, trust_of(arguments)
    try:
        context = tls_context(trust) if url.startswith("https:") else None
        # A service that cannot be reached, or serves no page, is said here and not in the browser.
        fetch(url, trust, "/ui/", b"", "set server.page: true in the configuration of the extender")
    except ServiceError as error:
        raise CommandError(str(error), error.remedy) from error
    arguments.drop_files()  # all of them are read, and a private key need not stay on disk
    run_on_loop(_serve(PageProxy(url, context), arguments))
    return 0


async def _serve(proxy: PageProxy, arguments: argparse.Namespace) -> None:
    try:
        async with proxy.listening(int(arguments.port)) as address:
            with TemporaryDirectory(prefix="placement-") as folder:
                say(address)
                if not arguments.no_browser:
                    _open(address, Path(folder))
                say("Ctrl-C ends it.", to=sys.stderr)
                await until_signal(_until(arguments.ended, arguments.url))
    except OSError as error:
        raise CommandError(f"{HOST}:{arguments.port}: {error.strerror}", "give another --port, or none") from None


def _never() -> bool:
    return False


def _nothing() -> None:
    """Of a service that is reached without a port-forward."""


async def _until(ended: Callable[[], bool], url: str) -> None:
    """Raises CommandError when the port-forward to the service has ended."""
    while not ended():  # noqa: ASYNC110 (kubectl is another process)
        await asyncio.sleep(_LOOK_SECONDS)
    raise CommandError(f"the port-forward to {url} has ended", "run the command again")


def _open(address: str, folder: Path) -> None:
    """Opens the address in the user's browser, without waiting for it.

    The browser gets a file that leads to the address: every user of the machine can read the arguments of a program, and who knows
    the address may ask the service.
    """
    if not has_display():
        say("no browser is opened: there is no display", to=sys.stderr)
        return
    file = folder / "placement.html"
    file.touch(0o600)
    target = escape(address)
    file.write_text(
        f'<!doctype html><meta name="referrer" content="no-referrer"><meta http-equiv="refresh" content="0;url={target}">'
        f'<a href="{target}">placement-extender</a>\n',
        "utf-8",
    )
    # In a thread, because a browser in a terminal does not return.
    Thread(target=webbrowser.open, args=(file.as_uri(),), name="browser", daemon=True).start()
