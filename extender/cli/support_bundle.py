"""`extender support-bundle`: collects what others need to look into a problem, without names, in one file. Changes nothing.

Each part has its limits of time and size. A part that cannot be had is named in the bundle and on standard error. Names, labels and
addresses are pseudonyms, as in a recording without names, and equal in all parts. Secrets and tokens are never read.
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import platform
import re
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any, Final

import orjson

from extender.cli import doctor
from extender.cli.files import access_to, read_redaction_key, read_settings
from extender.cli.main import CommandError, Commands, say
from extender.cli.progress import progress
from extender.cli.redacted_texts import TextRedactor
from extender.cli.service_client import CONFIGZ_NAME, ServiceError, read_answer, trust_of
from extender.cli.sources import cluster_of
from extender.compose.process import installed_version, run_on_loop
from extender.compose.recording import recorded_objects
from extender.kube.errors import KubeError, NotFound, Rejected
from extender.kube.listing import read_pages
from extender.kube.session import open_session
from extender.kube.timing import SystemClock
from extender.model.documents import DocumentError
from extender.model.objects import Object
from extender.model.units import counted
from extender.settings.configuration import Settings, parse_settings
from extender.telemetry.metrics import read_page
from extender.wire.errors import WireError
from extender.wire.objects.kinds import watched_kinds

_ALL_SECONDS: Final = 120.0
_PART_SECONDS: Final = 40.0
_MOST_BYTES: Final = 8 * 2**20  # of a part
_TOO_LARGE: Final = f"has more than {_MOST_BYTES >> 20} MiB"
_MOST_OBJECTS: Final = 50_000
_DECISIONS: Final = 1000  # the most that the service answers
_KEY_BYTES: Final = 32
# Fields of /version, here and of the API server, and the form of their values.
_VERSIONS: Final = frozenset({"version", "pythonVersion", "gitVersion", "platform"})
_VERSION: Final = re.compile(r"[\w.+/-]{1,60}", re.ASCII)
_NAMES: Final = frozenset(
    {"namespace", "pod_namespace", "scheduler", "topology_key", "workload", "name"}
)  # labels of metrics
_NEEDED: Final = frozenset({"Namespace", "Node", "Pod"})
_ERRORS: Final = (ServiceError, KubeError, WireError, DocumentError, OSError, ValueError, LookupError, TypeError)
_ABOUT: Final = """\
Names, labels and addresses are pseudonyms: a keyed hash, as in a recording without names. Equal names have equal pseudonyms in all files.
Words of the extender's own messages, numbers and times are as they were. Secrets and tokens are not read.

"""


def add_parser(commands: Commands) -> None:
    """Adds the parser."""
    parser = commands.add_parser(
        "support-bundle",
        help="collect what is needed to look into a problem, without names, in a file",
        examples=["", "--url http://127.0.0.1:8888 --file bundle.tar.gz"],
    )
    parser.add_argument("--file", metavar="FILE", default="", help="the file to write (placement-support-TIME.tar.gz)")
    parser.add_argument(
        "--redact-key-file",
        metavar="FILE",
        default="",
        help="key of the pseudonyms, with which you can find names again (default: a new one, kept nowhere)",
    )
    doctor.add_sources(parser)
    parser.set_defaults(run=run, unreached="", scheduler_config=None, output="json")


def run(arguments: argparse.Namespace) -> int:
    """Writes the file. Returns 0, also where parts are missing."""
    key = read_redaction_key(arguments.redact_key_file) if arguments.redact_key_file else os.urandom(_KEY_BYTES)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    path = Path(arguments.file or f"placement-support-{stamp}.tar.gz")
    try:
        # Created first, and never in place of another file: what follows takes time. Only the user may read it.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            bundle = _Bundle(arguments, TextRedactor(key))
            bundle.collect()
            bundle.write(file, f"placement-support-{stamp}")
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    for line in bundle.missing:
        say(f"left out: {line}", to=sys.stderr)
    say(f"{path}: {', '.join(bundle.files)}")
    return 0


@dataclass(frozen=True, slots=True)
class _Part:
    name: str
    make: Callable[[], bytes]


class _Bundle:
    """The parts of a bundle. ``missing``: a line for each part that could not be had, with names."""

    def __init__(self, arguments: argparse.Namespace, texts: TextRedactor) -> None:
        self.files: dict[str, bytes] = {}
        self.missing: list[str] = []
        self._arguments = arguments
        self._texts = texts
        self._settings = Settings()
        configured = read_settings(arguments.config) if arguments.config else Settings()
        self._address = doctor.address_of(arguments, configured)

    def collect(self) -> None:
        """Makes the parts one after the other. The time of all parts together is limited."""
        end = time.monotonic() + _ALL_SECONDS
        # Decisions come first: their names are then known in the messages of the others.
        parts = (
            _Part("decisions.json", self._decisions),
            _Part("configuration.json", self._configuration),
            _Part("versions.json", self._versions),
            _Part("readyz.txt", self._readyz),
            _Part("metrics.txt", self._metrics),
            _Part("doctor.json", self._doctor),
            _Part("recording.jsonl.gz", self._recording),
        )
        for part in parts:
            with progress(f"collects {part.name}"):
                try:
                    body = _within(min(_PART_SECONDS, end - time.monotonic()), part.make)
                except CommandError as error:
                    self.missing.append(f"{part.name}: {'; '.join(error.lines)}")
                except _ERRORS as error:
                    self.missing.append(f"{part.name}: {error}")
                else:
                    self._add(part.name, body)

    def _add(self, name: str, body: bytes) -> None:
        if len(body) > _MOST_BYTES:
            self.missing.append(f"{name}: {_TOO_LARGE}")
        else:
            self.files[name] = body

    def write(self, file: io.BufferedIOBase, folder: str) -> None:
        """Writes all parts, and a file about them."""
        lines = [*self.files, *(f"left out: {self._texts.message(line)}" for line in self.missing)]
        files = {"about.txt": (_ABOUT + "\n".join(lines) + "\n").encode(), **self.files}
        with tarfile.open(fileobj=file, mode="w:gz") as tar:
            for name, body in files.items():
                entry = tarfile.TarInfo(f"{folder}/{name}")
                entry.size, entry.mode, entry.mtime = len(body), 0o600, int(time.time())
                tar.addfile(entry, io.BytesIO(body))

    # ---- the parts

    def _ask(self, path: str) -> bytes:
        if self._arguments.unreached:
            raise CommandError(self._arguments.unreached)
        return read_answer(self._address, trust_of(self._arguments), path, _MOST_BYTES)

    def _decisions(self) -> bytes:
        page = orjson.loads(self._ask(f"/debug/decisions?limit={_DECISIONS}"))
        for decision in page["decisions"]:
            for name in ("namespace", "pod", "uid"):
                decision[name] = self._texts.name(str(decision[name]))
            if "suchAs" in decision:
                decision["suchAs"] = [self._texts.name(str(node)) for node in decision["suchAs"]]
        # An error has the names of the pod and others in it: by then they are known.
        for decision in page["decisions"]:
            if "error" in decision:
                decision["error"] = self._texts.message(str(decision["error"]))
        return orjson.dumps(page, option=orjson.OPT_INDENT_2)

    def _configuration(self) -> bytes:
        document = orjson.loads(self._ask("/configz"))[CONFIGZ_NAME]
        self._settings = parse_settings(document)
        return _json(self._texts.document(document))

    def _versions(self) -> bytes:
        versions: dict[str, Any] = {
            "command": installed_version(),
            "python": platform.python_version(),
            "platform": f"{platform.system().lower()}/{platform.machine()}",
        }
        reads: dict[str, Callable[[], bytes]] = {
            "service": lambda: self._ask("/version"),
            "kubernetes": self._server_version,
        }
        for name, read in reads.items():
            try:
                found = {key: str(value) for key, value in orjson.loads(read()).items() if key in _VERSIONS}
                versions[name] = {key: text for key, text in found.items() if _VERSION.fullmatch(text)}
            except (CommandError, *_ERRORS) as error:
                self.missing.append(f"versions.json: {name}: {error}")
        return _json(versions)

    def _server_version(self) -> bytes:
        if self._arguments.no_cluster:
            raise CommandError("--no-cluster")

        async def read() -> bytes:
            async with open_session(access_to(cluster_of(self._arguments)), SystemClock()) as session:
                return await session.reads.call("GET", "/version")

        return run_on_loop(read())

    def _readyz(self) -> bytes:
        return self._texts.message(self._ask("/readyz?verbose").decode()).encode()

    def _metrics(self) -> bytes:
        lines = []
        for name, labels, value in read_page(self._ask("/metrics").decode()):
            shown = ",".join(f'{label}="{self._label(label, text)}"' for label, text in labels.items())
            lines.append(f"{name}{{{shown}}} {value}" if shown else f"{name} {value}")
        return ("\n".join(lines) + "\n").encode()

    def _label(self, label: str, text: str) -> str:
        return self._texts.name(text) if label in _NAMES else self._texts.message(text)

    def _doctor(self) -> bytes:
        if self._arguments.unreached:
            raise CommandError(self._arguments.unreached)
        findings, checked = doctor.examine(self._arguments)
        rows = [
            {
                "severity": finding.severity,
                "check": finding.check,
                "problem": self._texts.message(finding.problem),
                "remedy": self._texts.message(finding.remedy),
            }
            for finding in findings
        ]
        return _json({"checked": list(map(self._texts.message, checked)), "findings": rows})

    def _recording(self) -> bytes:
        """The objects of the cluster as the extender reads them, in the form of a recording, which `extender replay` reads."""
        if self._arguments.no_cluster:
            raise CommandError("--no-cluster")
        objects = run_on_loop(self._objects())
        body, size = io.BytesIO(), 0
        lines = recorded_objects(self._settings, objects, time.time(), self._texts.names)
        with gzip.GzipFile(fileobj=body, mode="wb", mtime=0) as packed:
            for line in lines:
                packed.write(line)
                size += len(line)
                if body.tell() > _MOST_BYTES:
                    raise CommandError(_TOO_LARGE)
        return body.getvalue()

    async def _objects(self) -> list[Object]:
        objects: list[Object] = []
        async with open_session(access_to(cluster_of(self._arguments)), SystemClock()) as session:
            for watched in watched_kinds(self._settings):
                kind = watched.within(self._settings.limits)
                try:
                    async for page in read_pages(session.reads, kind.path):
                        objects += _decoded(kind.decode_object, page)
                        if len(objects) > _MOST_OBJECTS:
                            raise CommandError(f"the cluster has more than {counted(_MOST_OBJECTS, 'object')}")
                except (Rejected, NotFound) as error:
                    if watched.api_kind in _NEEDED:
                        raise
                    self.missing.append(f"recording.jsonl.gz: {watched.api_kind}: {error}")
        return objects


def _decoded(decode: Callable[[bytes], Object], page: list[bytes]) -> Iterator[Object]:
    for item in page:
        try:
            yield decode(item)
        except WireError:  # a metric of the service counts such objects
            continue


def _json(value: object) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2)


def _within(seconds: float, make: Callable[[], bytes]) -> bytes:
    """What ``make`` returns. Raises CommandError where it takes longer: its thread is left behind, and ends with the process."""
    results: Queue[tuple[bytes, Exception | None]] = Queue()

    def work() -> None:
        try:
            results.put((make(), None))
        except Exception as error:  # noqa: BLE001 (raised again in the thread that waits)
            results.put((b"", error))

    if seconds > 0:
        Thread(target=work, name="part of a bundle", daemon=True).start()
        try:
            body, error = results.get(timeout=seconds)
        except Empty:
            pass
        else:
            if error is not None:
                raise error
            return body
    raise CommandError("took too long")
