"""`extender certs --out DIR`: writes a certificate authority, a server certificate and a client certificate for each role.

For clusters without other tools for certificates. A second run keeps the authority and renews the certificates, which a
running service reloads. The authority's key has a folder of its own: it can sign a certificate for any role, so it must
not be on the machines of the extender and its clients.
"""

import argparse
import os
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from extender.certificates.authority import CLIENT, SERVER, Authority, Pair
from extender.certificates.renewal import AUTHORITY_DAYS
from extender.cli.files import read_bytes
from extender.cli.main import CommandError, Commands, say
from extender.cli.parser import add_cluster
from extender.model.constraints.labels import is_dns_subdomain

_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_CLIENTS: Final = (  # file, role in server.tls.clients, name
    ("client", "scheduler", "system:kube-scheduler"),
    ("metrics", "metrics", "prometheus"),
    ("admin", "admin", "placement-extender-admin"),
)
_SECRET: Final = 0o600
_PUBLIC: Final = 0o644


def add_parser(commands: Commands) -> None:
    """Adds the parser. The defaults are for an extender on the machine of the scheduler."""
    parser = commands.add_parser(
        "certs",
        help="make certificates for the extender and for its clients",
        examples=["--out certs --names placement-extender.kube-system.svc", "--secrets kube-system --names 127.0.0.1"],
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--out", metavar="DIR", help="folder for the files")
    where.add_argument(
        "--secrets",
        metavar="NAMESPACE",
        help="keep the certificates in Secrets of this namespace, and renew those in the last third of their life",
    )
    parser.add_argument(
        "--authority", metavar="DIR", help="folder of the authority's key, kept for renewals (OUT/authority)"
    )
    parser.add_argument(
        "--names",
        metavar="NAME",
        nargs="+",
        type=_name,
        default=list(_LOOPBACK),
        help=f"host names and addresses in the extender's URL ({' '.join(_LOOPBACK)})",
    )
    for file, role, name in _CLIENTS:
        parser.add_argument(
            f"--{file}-name",
            metavar="NAME",
            default=name,
            help=f"name of the client with the role {role} (%(default)s)",
        )
    parser.add_argument(
        "--days", metavar="N", type=_days, default=365.0, help="validity of the certificates in days (365)"
    )
    parser.add_argument(
        "--token", action="store_true", help="with --secrets: also keep a token of the extender's account, for a week"
    )
    add_cluster(parser, parser, "access to the cluster, with --secrets (as kubectl)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Writes the files and prints where each is used; with --secrets the Secrets."""
    if arguments.secrets:
        # Here, because the client of the API server takes long to import.
        from extender.cli import certificate_secrets  # noqa: PLC0415 - see above

        return certificate_secrets.run(arguments)
    folder, now = Path(arguments.out), datetime.now(UTC)
    authority_folder = Path(arguments.authority) if arguments.authority else folder / "authority"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        authority = _authority(authority_folder, folder / "ca.crt", now)
        # The certificate of the authority is public, and clients need it next to their own.
        _write(folder / "ca.crt", authority.pair.certificate_pem, _PUBLIC)
        server = authority.issue(arguments.names[0], now, arguments.days, SERVER, arguments.names)
        _write_pair(folder, "server", server)
        for file, _, _ in _CLIENTS:
            name = getattr(arguments, f"{file}_name")
            _write_pair(folder, file, authority.issue(name, now, arguments.days, CLIENT))
    except (OSError, ValueError) as error:
        raise CommandError(f"{folder}: {error}") from None
    say(
        f"{authority_folder / 'ca.key'}: signs certificates for every role; "
        "do not store it on the machines of the extender and the scheduler"
    )
    say(
        f"{folder / 'ca.crt'}: until {authority.end:%Y-%m-%d}; server.tls.clientCAFile of the extender, "
        "tlsConfig.caFile of the scheduler"
    )
    say(f"{folder / 'server.crt'}, .key: until {_end(server)}; for {', '.join(arguments.names)}; server.tls")
    for file, role, _ in _CLIENTS:
        name = getattr(arguments, f"{file}_name")
        say(f"{folder / file}.crt, .key: until {_end(server)}; {name}; server.tls.clients.{role}")
    return 0


def _authority(folder: Path, in_use: Path, now: datetime) -> Authority:
    """The authority in the folder, or a new one. Raises CommandError if a certificate of a third authority is in use."""
    certificate, key = folder / "ca.crt", folder / "ca.key"
    if not certificate.exists() and not key.exists():
        if in_use.exists():  # running clients and servers trust another authority
            raise CommandError(
                f"{in_use} exists, but its key is not in {folder}: give the key's folder with --authority, "
                "or remove this file to create a new authority"
            )
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = Authority.make("placement-extender", now, AUTHORITY_DAYS)
        _write_pair(folder, "ca", made.pair)
        return made
    try:
        authority = Authority.load(read_bytes(str(certificate)), read_bytes(str(key)))
    except ValueError as error:
        raise CommandError(f"{folder}: {error}") from None
    # An expired authority would sign certificates that no client accepts, and the files would look renewed.
    if authority.end <= now:
        raise CommandError(f"{certificate}: expired on {authority.end:%Y-%m-%d}; remove it to create a new one")
    return authority


def _write_pair(folder: Path, name: str, pair: Pair) -> None:
    # A service that reloads between the two writes finds a mismatch, and keeps its present certificate.
    _write(folder / f"{name}.key", pair.key_pem, _SECRET)
    _write(folder / f"{name}.crt", pair.certificate_pem, _PUBLIC)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Replaces a file in one step, because a running service may read it at any time. Its mode is set from the start."""
    draft = path.with_name(f".{path.name}.new")
    # A draft that an interrupted run has left. O_EXCL below would fail on it, and its mode may be another one.
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    draft.replace(path)


def _end(pair: Pair) -> str:
    return f"{pair.certificate.not_valid_after_utc:%Y-%m-%d}"


def _name(text: str) -> str:
    """A placeholder such as CLUSTER-IP is no name that a client could call."""
    try:
        ip_address(text)
    except ValueError:
        # A wildcard may stand for the first label only, as `*.example.com` (RFC 6125).
        if not is_dns_subdomain(text.removeprefix("*.")):
            raise argparse.ArgumentTypeError(f'expected a host name or an address, got "{text}"') from None
    return text


def _days(text: str) -> float:
    days = float(text)
    if not days > 0:
        raise argparse.ArgumentTypeError("must be more than 0")
    return days
