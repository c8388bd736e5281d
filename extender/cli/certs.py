"""`extender certs --out DIR`: a certificate authority, a server certificate and one for each role of a client, as files.

For those who have no certificate machinery of their own. Run again it keeps the authority and renews the others, which
a running service takes in by itself. The authority's key is in a folder of its own: it can sign a certificate for any
role, so it does not belong on a machine that serves or asks.
"""

import argparse
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from extender.cli.authority import CLIENT, SERVER, Authority, Pair
from extender.cli.command import CommandError, Commands
from extender.cli.files import read_bytes

_AUTHORITY_DAYS: Final = 3650.0
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_CLIENTS: Final = (  # file, role in server.tls.clients, name
    ("client", "scheduler", "system:kube-scheduler"),
    ("metrics", "metrics", "prometheus"),
    ("admin", "admin", "placement-extender-admin"),
)
_SECRET: Final = 0o600
_PUBLIC: Final = 0o644


def add_parser(commands: Commands) -> None:
    """The defaults are for an extender on the scheduler's own machine."""
    parser = commands.add_parser("certs", help="make certificates for the extender and for its clients")
    parser.add_argument("--out", metavar="DIR", required=True, help="where the files go")
    parser.add_argument(
        "--authority", metavar="DIR", help="where the authority's key is, or goes; used again (authority, below --out)"
    )
    parser.add_argument(
        "--names",
        metavar="NAME",
        nargs="+",
        default=list(_LOOPBACK),
        help=f"host names and addresses in the extender's URL ({' '.join(_LOOPBACK)})",
    )
    for file, role, name in _CLIENTS:
        parser.add_argument(
            f"--{file}-name", metavar="NAME", default=name, help=f"the client with the role {role} (%(default)s)"
        )
    parser.add_argument("--days", metavar="N", type=_days, default=365.0, help="how long they are good for (365)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Writes the files and prints the use of each."""
    folder, now = Path(arguments.out), datetime.now(UTC)
    apart = Path(arguments.authority) if arguments.authority else folder / "authority"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        authority = _authority(apart, folder / "ca.crt", now)
        _write(folder / "ca.crt", authority.pair.certificate_pem, _PUBLIC)
        server = authority.issue(arguments.names[0], now, arguments.days, SERVER, arguments.names)
        _write_pair(folder, "server", server)
        for file, _, _ in _CLIENTS:
            name = getattr(arguments, f"{file}_name")
            _write_pair(folder, file, authority.issue(name, now, arguments.days, CLIENT))
    except (OSError, ValueError) as error:
        raise CommandError(f"{folder}: {error}") from None
    print(f"{apart / 'ca.key'}: signs certificates for every role; keep it off the machines that serve and ask")
    print(f"{folder / 'ca.crt'}: until {authority.end:%Y-%m-%d}; server.tls.clientCAFile here, tlsConfig.caFile there")
    print(f"{folder / 'server.crt'}, .key: until {_end(server)}; for {', '.join(arguments.names)}; server.tls here")
    for file, role, _ in _CLIENTS:
        name = getattr(arguments, f"{file}_name")
        print(f"{folder / file}.crt, .key: until {_end(server)}; {name}; server.tls.clients.{role} here")
    return 0


def _authority(folder: Path, in_use: Path, now: datetime) -> Authority:
    """The one in the folder, or a new one unless the certificate of another one is in use."""
    certificate, key = folder / "ca.crt", folder / "ca.key"
    if not certificate.exists() and not key.exists():
        if in_use.exists():
            raise CommandError(
                f"{in_use}: made before, and its key is not in {folder}; name the key's folder with --authority, "
                "or move this file away to have a new authority made"
            )
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = Authority.make("placement-extender", now, _AUTHORITY_DAYS)
        _write_pair(folder, "ca", made.pair)
        return made
    try:
        found = Authority.load(read_bytes(str(certificate)), read_bytes(str(key)))
    except ValueError as error:
        raise CommandError(f"{folder}: {error}") from None
    if found.end <= now:
        raise CommandError(f"{certificate}: expired on {found.end:%Y-%m-%d}; move it away to have a new one made")
    return found


def _write_pair(folder: Path, name: str, pair: Pair) -> None:
    _write(folder / f"{name}.key", pair.key_pem, _SECRET)
    _write(folder / f"{name}.crt", pair.certificate_pem, _PUBLIC)


def _write(path: Path, content: bytes, mode: int) -> None:
    """In one step and never readable by others in between: a running service may look at any moment."""
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    draft.replace(path)


def _end(pair: Pair) -> str:
    return f"{pair.certificate.not_valid_after_utc:%Y-%m-%d}"


def _days(text: str) -> float:
    """For argparse."""
    days = float(text)
    if not days > 0:
        raise argparse.ArgumentTypeError("must be more than 0")
    return days
