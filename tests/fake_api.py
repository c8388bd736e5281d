"""The one fake of the API: the simulator's API server in this process, behind the connection that classes of `kube/writer.py` take.

It answers, keeps versions and refuses as the simulator does. A test reads and changes its objects, and says which calls fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, Final

from extender.kube.errors import KubeError, Rejected
from extender.kube.session import JSON, NO_QUERY, Body, Query
from extender.simulator.apiserver.kinds import (
    GROUP_PLACEMENTS,
    NAMESPACES,
    PODS,
    SECRETS,
    ServedKind,
    parse_path,
)
from extender.simulator.apiserver.server import ApiServer
from extender.simulator.apiserver.store import Store, complete, object_prefix
from tests.in_memory import InMemoryConnection, Link

Json = dict[str, Any]
Failing = Callable[[str, str], KubeError | None]
# The simulator serves no EndpointSlices, as doctor would judge them. Secrets, whose fields are free as well, stand for them.
_ENDPOINT_SLICES: Final = ServedKind("endpointslices", "EndpointSlice", "discovery.k8s.io", has_status=False)
_SLICES: Final = ("/apis/discovery.k8s.io/v1", "/endpointslices")
_SECRETS: Final = ("/api/v1", "/secrets")
_VERBS: Final = {"POST": "create", "GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def never(_call: str, _name: str) -> None:
    """No call fails."""


class Rows(MutableMapping[str, Json]):
    """The objects of a kind by `namespace/name` or name. Each look gives a copy; to change an object, put it again."""

    def __init__(self, store: Store, kind: ServedKind) -> None:
        self._store = store
        self._kind = kind
        self._objects = store.table(kind).objects

    def __getitem__(self, key: str) -> Json:
        return self._objects[key].read()

    def __setitem__(self, key: str, body: Json) -> None:
        assert self._store.put(self._kind, body).key == key

    def __delitem__(self, key: str) -> None:
        self._store.remove(self._kind, key)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._objects))

    def __len__(self) -> int:
        return len(self._objects)

    def edit(self, key: str, part: str, **fields: object) -> None:
        """Sets fields of a part of an object, as its metadata or its spec."""
        body = self[key]
        body[part].update(fields)
        self[key] = body

    def lines(self, *names: str) -> list[bytes]:
        """The complete objects as a watch writes them: all, or those with these names in any namespace."""
        stored = self._objects.items()
        return [complete(self._kind, row.body) for key, row in stored if not names or key.rpartition("/")[2] in names]


class FakeApi(InMemoryConnection):
    """A connection to it. Calls are named as `patch pods`, `update groupplacements` and `patch groupplacements/status`.

    - ``calls``: each call with the name of its object, in order.
    - ``writes`` and ``written``: the verb of each write that was carried out, and the name of its object.
    - ``fail``: asked before each call for the error that it raises.
    - ``lose_answer``: asked after each write, which has been made.
    - ``rejected``: names of the objects whose write was no valid one.
    """

    def __init__(self) -> None:
        self.server = ApiServer()
        super().__init__(Link(self.server))
        self.pods = self.rows(PODS)
        self.placements = self.rows(GROUP_PLACEMENTS)
        self.slices = self.rows(SECRETS)
        self.calls: list[tuple[str, str]] = []
        self.writes: list[str] = []
        self.written: list[str] = []
        self.rejected: list[str] = []
        self.at_once = self.most_at_once = 0
        self.fail: Failing = never
        self.lose_answer: Failing = never

    def rows(self, kind: ServedKind) -> Rows:
        """The objects of a kind."""
        return Rows(self.server.store, kind)

    def count(self, call: str) -> int:
        """How often a call was made."""
        return sum(made == call for made, _ in self.calls)

    def add(self, pod: Json) -> None:
        """Stores a pod under its next version."""
        self.server.store.put(PODS, pod)

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Query = NO_QUERY,
        body: Body | None = None,
        content_type: str = JSON,
        limit: float | None = None,
        largest: int = 2**25,
    ) -> bytes:
        """As the base."""
        is_slice = path.startswith(_SLICES[0])
        if is_slice:
            for part, other in zip(_SLICES, _SECRETS, strict=True):
                path = path.replace(part, other)
        call, name = self._named(method, path, body)
        self.calls.append((call, name))
        _raise(self.fail(call, name))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if call == "patch pods":  # pods are released beside each other
                await asyncio.sleep(0)
            answer = await super().call(
                method, path, query=query, body=body, content_type=content_type, limit=limit, largest=largest
            )
        except Rejected:
            self.rejected.append(name)
            raise
        finally:
            self.at_once -= 1
        if method != "GET":
            self.writes.append(_VERBS[method])
            self.written.append(name)
            _raise(self.lose_answer(call, name))
        return answer.replace(object_prefix(SECRETS), object_prefix(_ENDPOINT_SLICES)) if is_slice else answer

    def _named(self, method: str, path: str, body: Any) -> tuple[str, str]:
        target = parse_path(path)
        assert target is not None, path
        namespaces = self.rows(NAMESPACES)
        if target.namespace and target.namespace not in namespaces:
            namespaces[target.namespace] = {"metadata": {"name": target.namespace}}
        resource = f"{target.kind.plural}/{target.subresource}".rstrip("/")
        return f"{_VERBS[method]} {resource}", target.name or body["metadata"]["name"]


def _raise(error: KubeError | None) -> None:
    if error is not None:
        raise error
