"""Reads configuration files, scenarios and the environment. Called by the subcommands.

Returns values. Every error is a CommandError with the name of the file.
"""

import codecs
import os
import re
import sys
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import orjson
import yaml

from extender.cli.main import CommandError
from extender.kube.credentials import ACCOUNT_FOLDER, Access
from extender.kube.yaml_bounds import BoundedLoader
from extender.model.documents import DocumentError
from extender.settings.configuration import DEFAULT_NAMESPACE, Settings, parse_settings
from extender.settings.connections import Kube
from extender.settings.limits import ConstraintLimits
from extender.wire.errors import WireError
from extender.wire.recordings.redaction import LEAST_KEY_BYTES
from extender.wire.snapshots import Snapshot, decode_snapshot
from extender.wire.webhook_configurations import OwnPod

T = TypeVar("T")

MOST_VALUES: Final = 100_000  # of a file with settings, a scenario or policies; 4 s of a processor
MOST_VALUES_OF_OBJECTS: Final = 2_000_000  # of a cluster of 5,000 nodes and their pods
_DISPLAYS: Final = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
STDIN: Final = "-"
_DEEPEST_LIST: Final = 8
_OBJECT_FILES: Final = (".json", ".yaml", ".yml")
_GZIP: Final = b"\x1f\x8b"
# JSON, whose keys have quotes, and the logs of a dump.
_NO_YAML: Final = re.compile(rb"""\s*([{\[]\s*["{}\[\]]|==== START logs|\Z)""")
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins as UTF-16 does
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_NO_DECIMAL: Final = re.compile(r"[-+]?0[0-9_]+|.*:.*")  # of base 8, and of base 60
_PACKAGE: Final = Path(__file__).resolve().parents[1]
# The folders of the project's own files: in the working directory, in the checkout of this code, or in the installed
# package, to which pyproject.toml copies config/.
_OWN_FILES: Final = (Path("config"), _PACKAGE.parent / "config", _PACKAGE / "data")


def read_settings(path: str) -> Settings:
    """The settings of a configuration file. Raises CommandError with a line for each problem."""
    try:
        return parse_settings(read_yaml(path))
    except DocumentError as error:
        raise CommandError(*(f"{path}: {problem}" for problem in error.problems)) from None


def read_snapshot(path: str, limits: ConstraintLimits) -> Snapshot:
    """The objects in a file with the output of kubectl, or in standard input for "-". Raises CommandError."""
    try:
        return decode_snapshot(read_listed(path), limits)
    except WireError as error:
        raise CommandError(f"{path}: {error}") from None


def own_file(name: str) -> Path:
    """A file or folder of the project's config/, such as "demo/scenario.yaml". Raises CommandError."""
    for folder in _OWN_FILES:
        if (folder / name).exists():
            return folder / name
    raise CommandError(f"config/{name}: not in the working directory, and not installed with the extender")


def read_yaml(path: str) -> object:
    """The document of a YAML or JSON file. A field that is set twice is an error, as in Kubernetes."""
    return _parsed(path, lambda body: _OwnLoader(body, MOST_VALUES).get_single_data())


def read_yaml_documents(path: str, most_values: int = MOST_VALUES_OF_OBJECTS) -> list[object]:
    """All documents of a YAML or JSON file, as `read_yaml`."""
    return _parsed(path, lambda body: _StrictLoader(body, most_values).documents())


def read_documents(path: str, most_values: int = MOST_VALUES_OF_OBJECTS) -> list[dict[str, Any]]:
    """The objects of all documents of a YAML or JSON file, also in Lists, as plain JSON."""
    items = [item for document in read_yaml_documents(path, most_values) for item in _listed(_plain(path, document))]
    if not items or not all(isinstance(item, dict) for item in items):
        raise CommandError(f"{path}: expected Kubernetes objects")
    return items


def _plain(path: str, document: object) -> Any:
    """A document of YAML as JSON: YAML has dates, and keys that are numbers."""
    try:
        return orjson.loads(orjson.dumps(document))
    except TypeError as error:
        raise CommandError(f"{path}: {error}") from None


def _listed(value: Any, depth: int = 0) -> Iterator[Any]:
    """An object, or the objects of a List. Lists may be nested."""
    # `kubectl get` prints kind List; API servers print PodList, NodeList and so on.
    if isinstance(value, dict) and str(value.get("kind")).endswith("List") and depth < _DEEPEST_LIST:
        items = value.get("items")
        for item in items if isinstance(items, list) else ():
            yield from _listed(item, depth + 1)
    elif value is not None:
        yield value


def read_listed(path: str) -> bytes:
    """The objects of a file in any form that kubectl prints, as JSON: JSON or YAML, with a byte order mark, in UTF-16.

    The path may be a folder, such as `kubectl cluster-info dump --output-directory` makes: then the objects of all its files.
    Raises CommandError.
    """
    if path != STDIN and Path(path).is_dir():
        files = sorted(file for file in Path(path).rglob("*") if file.suffix in _OBJECT_FILES)
        if not files:
            raise CommandError(f"{path}: a folder without files of JSON or YAML")
        # JSON documents one after the other: the decoder of snapshots takes a stream of them.
        return b"\n".join(read_listed(str(file)) for file in files)
    body = _as_utf8(path, read_bytes(path))
    if _NO_YAML.match(body):
        return body
    documents = _parse(path, lambda: _StrictLoader(body, MOST_VALUES_OF_OBJECTS).documents())
    items = [_plain(path, document) for document in documents if document is not None]
    if not items or not all(isinstance(item, dict) for item in items):
        raise CommandError(f"{path}: expected objects, as `kubectl get -o json` or `-o yaml` prints")
    return b"\n".join(map(orjson.dumps, items))


def _as_utf8(path: str, body: bytes) -> bytes:
    """The text converted to UTF-8. Shells of Windows write UTF-16 with a byte order mark."""
    if body.startswith(_GZIP):
        raise CommandError(f"{path}: is compressed with gzip, unpack it first")
    encoding = next((name for mark, name in _MARKS if body.startswith(mark)), "")
    if not encoding and 0 in body[:2]:  # UTF-16 without a mark, as iconv writes it: the first character is one of ASCII
        encoding = "utf-16-be" if body[:1] == b"\0" else "utf-16-le"
    try:
        return body.decode(encoding).encode() if encoding else body
    except UnicodeDecodeError:
        raise CommandError(f"{path}: begins with the byte order mark of {encoding}, but is not {encoding}") from None


def _parsed(path: str, parse: Callable[[bytes], T]) -> T:
    body = read_bytes(path)
    return _parse(path, lambda: parse(body))


def _parse(path: str, parse: Callable[[], T]) -> T:
    try:
        return parse()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise CommandError(f"{path}: {place}{error.problem}") from None
    except yaml.YAMLError as error:
        raise CommandError(f"{path}: {error}") from None


def read_bytes(path: str) -> bytes:
    """The content of a file, or of standard input for "-". Raises CommandError."""
    try:
        return sys.stdin.buffer.read() if path == STDIN else Path(path).read_bytes()
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None


def read_redaction_key(path: str) -> bytes:
    """The key of a redacted recording. Raises CommandError."""
    key = read_bytes(path).strip()
    if len(key) < LEAST_KEY_BYTES:
        raise CommandError(f"{path}: a key of at least {LEAST_KEY_BYTES} bytes is needed, this one has {len(key)}")
    return key


def is_file(path: str) -> bool:
    """Whether this machine has the file."""
    return Path(path).is_file()


def kubectl_file(given: str) -> str:
    """The kubeconfig that kubectl takes: the given one, or the environment's; empty for the default."""
    return given or os.environ.get("KUBECONFIG", "")


def has_display() -> bool:
    """Whether a browser can be shown, as far as the environment tells. Other systems than Linux always have a display."""
    return not sys.platform.startswith("linux") or any(map(os.environ.get, _DISPLAYS))


def access_to(kube: Kube) -> Access:
    """Access by the kubeconfig of the settings, else the service account of this pod, else the default kubeconfig."""
    # The kubelet sets the variable in every pod; client-go recognizes a pod by it as well.
    host = "" if kube.kubeconfig or kube.context else os.environ.get("KUBERNETES_SERVICE_HOST", "")
    if host:
        address = f"[{host}]" if ":" in host else host
        port = os.environ.get("KUBERNETES_SERVICE_PORT") or "443"
        return Access(host=f"https://{address}:{port}", account_folder=ACCOUNT_FOLDER)
    # As client-go: the variable, possibly with several files, and then the home folder.
    default = os.environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
    return Access(kubeconfig=kube.kubeconfig or default, context=kube.context)


def own_namespace(outside: str = DEFAULT_NAMESPACE) -> str:
    """The namespace of this pod; ``outside`` of a pod kube-system, the namespace of kube-scheduler."""
    try:
        return (Path(ACCOUNT_FOLDER) / "namespace").read_text("utf-8").strip() or outside
    except OSError:
        return outside


def own_pod() -> OwnPod | None:
    """This pod, where the manifest passes its name, UID and address; None elsewhere."""
    values = [os.environ.get(name, "") for name in ("POD_NAME", "POD_UID", "POD_IP")]
    return OwnPod(*values) if all(values) else None


class _StrictLoader(BoundedLoader):
    """A YAML loader that rejects a field that is set twice. The base class takes the last value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 (overrides)
        """Builds a mapping. Called for each one, with the arguments of the base class."""
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                problem = "expected text as a key, got a mapping or a list; a template such as {{ .Values.x }} must be rendered first"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f'"{key.value}" is set twice', problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: FBT001, FBT002 (overrides)
        """Builds a value. Called for each one, with the arguments of the base class, which lets Python's own errors through."""
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError) as error:
            kind = node.tag.rpartition(":")[2]
            raise yaml.MarkedYAMLError(
                problem=f'"{node.value}" is no {kind}: {error}', problem_mark=node.start_mark
            ) from None


class _OwnLoader(_StrictLoader):
    """For the project's own documents: refuses a number such as 010, which YAML 1.1 reads as 8.

    In objects of Kubernetes `defaultMode: 0644` is usual, and means what YAML 1.1 says.
    """

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """Builds a number, with the arguments of the base class."""
        value: int = super().construct_yaml_int(node)
        if _NO_DECIMAL.fullmatch(node.value):
            problem = f"{node.value} is read as {value}: write it as a decimal number, without a leading 0 or a colon"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        return value


_OwnLoader.add_constructor("tag:yaml.org,2002:int", _OwnLoader.construct_yaml_int)
