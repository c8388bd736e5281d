"""What a tenant's pod, or a broken or hostile API server, puts into the streams that the service reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import count

import orjson

from extender.simulator.apiserver.kinds import PODS
from extender.simulator.json_objects import JsonObject
from tests.attack.attacks import ATTACKS, Target
from tests.attack.bodies import GZIP_BOMB
from tests.attack.hostile_api import PIECE, Request, Script
from tests.attack.pulse import within
from tests.server.raw import whole
from tests.simulator.plain import pod

PATIENCE = 20.0
SECONDS = 2.0  # of a script without an end
DEPTH = 200  # as deep as the embedded API server writes


async def _seen_after(target: Target, name: str) -> str:
    """Whether the service still learns of a pod that is bound from now on: it is counted on its node."""
    _create(target, pod(name, on="node-a", labels={"app": name}))
    apart = pod(f"{name}-2", labels={"app": name}, affinity=_apart(name))
    apart = _create(target, apart)  # with the UID by which the watch knows it
    body = orjson.dumps({"Pod": apart, "NodeNames": ["node-a"]})
    async with within(target.process, PATIENCE), target.wire() as connection:
        while True:
            await connection.send(whole("POST", "/filter", body))
            await connection.status()
            answer = orjson.loads(connection.body)
            if "NodeNames" in answer and not answer["NodeNames"] and not answer["Error"]:
                return "pods are still seen"
            await asyncio.sleep(0.1)


def _create(target: Target, found: JsonObject) -> JsonObject:
    return target.api.operations.create(PODS, found).read()


def _apart(app: str) -> dict[str, object]:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


# -- objects of tenants -----------------------------------------------------------------------------------------------


@ATTACKS.attack("a pod with managed fields 200 deep")
async def _(target: Target) -> str:
    deep: object = {}
    for _ in range(DEPTH):
        deep = {"f:a": deep}
    found = pod("deep")
    found["metadata"]["managedFields"] = [{"manager": "x", "fieldsV1": deep}]
    _create(target, found)
    return await _seen_after(target, "after-deep")


@ATTACKS.attack("a pod with 1 MiB of annotations")
async def _(target: Target) -> str:
    found = pod("large")
    found["metadata"]["annotations"] = {"a": "\u2028" * 2**18}
    _create(target, found)
    return await _seen_after(target, "after-large")


# -- scripts of an API server -----------------------------------------------------------------------------------------

_NAMES = count()
_NO_STREAMING = b'{"kind":"Status","status":"Failure","code":422,"reason":"Invalid","message":"no streaming lists"}'


def _page(items: bytes = b"", metadata: bytes = b'{"resourceVersion":"1"}') -> bytes:
    return b'{"kind":"PodList","apiVersion":"v1","metadata":' + metadata + b',"items":[' + items + b"]}"


def _event(found: bytes, kind: str = "MODIFIED") -> bytes:
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), found)


def _pod(metadata: bytes = b"", spec: bytes = b'"containers":[]', name: str = "odd") -> bytes:
    head = b'"name":"%s","namespace":"default","uid":"uid-%s","resourceVersion":"9"' % (name.encode(), name.encode())
    return b'{"metadata":{' + head + (b"," + metadata if metadata else b"") + b'},"spec":{' + spec + b"}}"


def _nested(depth: int, opening: bytes = b'{"f:a":', closing: bytes = b"}") -> bytes:
    return b'"managedFields":[{"fieldsV1":' + opening * depth + b"1" + closing * depth + b"}]"


def _lists(body: bytes, *fields: str, status: str = "200 OK") -> Script:
    """Every list is answered so, and watches are silent."""

    async def script(request: Request) -> None:
        if request.is_streaming_list:
            await request.answer(_NO_STREAMING, "422 Unprocessable Entity")
        elif request.is_watch:
            await request.begin()
            await request.forever()
        else:
            await request.answer(body, status, *fields)

    return script


def _watches(content: Callable[[], Iterator[bytes]], *fields: str, stays: bool = False) -> Script:
    """Lists are empty; each watch brings this, at the pace at which it is read, then ends or is silent."""

    async def script(request: Request) -> None:
        if request.is_streaming_list:
            await request.answer(_NO_STREAMING, "422 Unprocessable Entity")
        elif request.is_watch:
            await request.begin("200 OK", *fields)
            for piece in content():
                await request.send(piece)
            if stays:
                await request.forever()
        else:
            await request.answer(_page())

    return script


def _streams(content: Callable[[], Iterator[bytes]]) -> Script:
    """Every request is answered with this, a streaming list too."""

    async def script(request: Request) -> None:
        await request.begin()
        for piece in content():
            await request.send(piece)

    return script


def _answers(content: bytes) -> Script:
    """Every request is answered with these bytes, the head among them."""

    async def script(request: Request) -> None:
        await request.send(content)

    return script


def _script(name: str, script: Script, *, seconds: float = SECONDS, quick: bool = False) -> None:
    """An attack that plays a script for a while; afterwards pods must be seen as before."""

    async def play(target: Target) -> str:
        async with target.front.playing(script):
            await asyncio.sleep(seconds)
            requests = target.front.requests
        if not requests:
            return "failed: nothing was read"
        return f"read {requests} times; {await _seen_after(target, f'after-script-{next(_NAMES)}')}"

    ATTACKS.attack(name, quick=quick)(play)


def _endless(piece: bytes) -> Callable[[], Iterator[bytes]]:
    def content() -> Iterator[bytes]:
        while True:
            yield piece

    return content


def _once(*pieces: bytes) -> Callable[[], Iterator[bytes]]:
    return lambda: iter(pieces)


def _new_pods() -> Iterator[bytes]:
    for first in range(0, 20_000, 100):
        yield b"".join(_event(_pod(name=f"new-{number}"), "ADDED") for number in range(first, first + 100))


def _pages(*, with_pods: bool, same_token: bool = False) -> Script:
    """Pages without an end."""
    numbers = count()

    async def script(request: Request) -> None:
        if request.is_streaming_list:
            await request.answer(_NO_STREAMING, "422 Unprocessable Entity")
            return
        number = 0 if same_token else next(numbers)
        items = b",".join(_pod(name=f"page-{number}-{each}") for each in range(500)) if with_pods else b""
        await request.answer(_page(items, b'{"resourceVersion":"1","continue":"token-%d"}' % number))

    return script


_LABELS = b'"labels":{' + b",".join(b'"k%d":"v"' % number for number in range(100_000)) + b"}"
_SAME = _event(_pod(b'"labels":{"app":"same"}')) * 500
_GONE = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}\n'
_LATER = b'{"type":"ERROR","object":{"kind":"Status","code":429,"details":{"retryAfterSeconds":%d}}}\n'
_BOOKMARK = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%s","annotations":{"k8s.io/initial-events-end":"true"}}}}\n'
_HTML = b"<html><body>" + b"login " * 10_000

# Streaming lists come first: what follows tells the service that there are none.
_script("a streaming list of one line without end", _streams(_endless(b"a" * PIECE)))
_script("a streaming list that repeats an event", _streams(_endless(_SAME)))
_script("a streaming list of blank lines", _streams(_endless(b"\n" * PIECE)))
_script("a streaming list that is no JSON", _streams(_once(_HTML)))
_script("a watch line without end", _watches(_endless(b"a" * PIECE)))
_script("a watch line of 1,000,000 objects", _watches(_once(_event(b"[" + b"{}," * 1_000_000 + b"{}]"))))
_script("a watch that repeats an event at full speed", _watches(_endless(_SAME)))
_script("a watch of blank lines", _watches(_endless(b"\n" * PIECE)))
_script("a watch of lines {}", _watches(_endless(b"{}\n" * 10_000)))
_script("a watch of lines null", _watches(_endless(b"null\n" * 10_000)))
_script("a watch of lines that are no JSON", _watches(_endless(b"}{\n" * 10_000)))
_script("a watch of unknown event types", _watches(_endless(_event(_pod(), "EXPLODED") * 500)))
_script("a watch of bookmarks at full speed", _watches(_endless(_BOOKMARK % b"7" * 500)))
_script("half a line, then silence", _watches(_once(_event(_pod())[:40]), stays=True))
_script("20,000 new pods, and a list without them", _watches(_new_pods, stays=True), seconds=5)
_script("410 after 410", _watches(_once(_GONE)))
_script("410 with status 410", _lists(_GONE, status="410 Gone"))
_script("try again in -1 seconds", _watches(_once(_LATER % -1)))
_script("pages without end", _pages(with_pods=False))
_script("pages of 500 pods without end", _pages(with_pods=True), seconds=5)
_script("the same continue token for ever", _pages(with_pods=True, same_token=True))
for _depth in (1_100, 100_000):
    _script(f"a list item {_depth:,} deep", _lists(_page(_pod(_nested(_depth)))))
    _script(f"a list item with arrays {_depth:,} deep", _lists(_page(_pod(_nested(_depth, b"[", b"]")))))
    _script(f"a watch event {_depth:,} deep", _watches(_endless(_event(_pod(_nested(_depth))))))
    _script(f"list metadata {_depth:,} deep", _lists(_page(metadata=b'{"a":' * _depth + b"1" + b"}" * _depth)))
_script("a list item that is not UTF-8", _lists(_page(_pod(b'"labels":{"a":"\xff\xfe"}'))))
_script("watch events that are not UTF-8", _watches(_once(_event(_pod(b'"labels":{"a":"\xff"}')) * 1000), stays=True))
_script("list metadata that is not UTF-8", _lists(_page(metadata=b'{"resourceVersion":"\xff"}')))
for _item in (b"1", b"null", b'"pod"', b"[]", b"{}", b'{"metadata":[]}', b'{"metadata":{"name":1}}', b"{"):
    _script(f"a list item {_item.decode()}", _lists(_page(_item + b"," + _pod())), seconds=1)
for _metadata in (b"1", b"null", b"[]", b"{}", b'{"resourceVersion":1}', b'{"resourceVersion":"0"}'):
    _script(f"list metadata {_metadata.decode()}", _lists(_page(metadata=_metadata)), seconds=1)
_script("a list that is no object", _lists(b"[1,2,3]"), seconds=1)
_script("a list of 4,000,000 numbers", _lists(_page(b"1," * 4_000_000 + b"1")))
_script("a list of 2,000,000 empty items", _lists(_page(b"{}," * 2_000_000 + b"{}")))
_script("a list of 60 MiB of spaces", _lists(_page(b" " * 60 * 2**20)))
_script("a list of 100 MiB", _lists(_page(b" " * 100 * 2**20)))
_script("HTML in place of a list", _lists(_HTML, "Content-Type: text/html"))
_script("a list as protobuf", _lists(b"k8s\x00\n\x0c\n\x02v1", "Content-Type: application/vnd.kubernetes.protobuf"))
_script("a list that inflates to 512 MiB", _lists(GZIP_BOMB, "Content-Encoding: gzip"))
_script("a watch that inflates to 512 MiB", _watches(_once(GZIP_BOMB), "Content-Encoding: gzip"))
_script("a resourceVersion of 1 MiB in a list", _lists(_page(metadata=b'{"resourceVersion":"' + b"9" * 2**20 + b'"}')))
_script("a resourceVersion of 1 MiB in a bookmark", _watches(_once(_BOOKMARK % (b"9" * 2**20))))
_script("a resourceVersion with line ends", _watches(_once(_BOOKMARK % rb"1\r\nX-Smuggled: 1\r\n\r\nGET / HTTP/1.1")))
_script(
    "a continue token of 1 MiB", _lists(_page(metadata=b'{"resourceVersion":"1","continue":"' + b"c" * 2**20 + b'"}'))
)
_script("a pod with 100,000 labels, again and again", _watches(_endless(_event(_pod(_LABELS)))))
_script("a list of pods with 100,000 labels", _lists(_page(b",".join(_pod(_LABELS, name=f"l{n}") for n in range(20)))))
_script(
    "priorities of -2^63",
    _watches(_once(_event(_pod(spec=b'"priority":-9223372036854775808')) * 1000), stays=True),
)
_script("negative requests and ports", _watches(_endless(_event(_pod(
    spec=b'"nodeName":"node-a","containers":[{"ports":[{"hostPort":-1}],"resources":{"requests":{"cpu":"-5","memory":"-1e999"}}}]'
)) * 100)))  # fmt: skip
_script("names with NUL bytes", _watches(_endless(_event(
    rb'{"metadata":{"name":"a\u0000b","namespace":"\u0000","uid":"\u0000","labels":{"\u0000":"\u0000"}},"spec":{"nodeName":"\u0000"}}'
) * 100)))  # fmt: skip
_script("raw NUL bytes", _watches(_endless(b"\x00" * PIECE)))
_script("a name of 1 MiB", _watches(_once(_event(_pod(name="n" * 2**20))), stays=True))
_script("redirects to itself", _answers(b"HTTP/1.1 302 Found\r\nLocation: /api/v1/pods\r\nContent-Length: 0\r\n\r\n"))
_script("an answer that is no HTTP", _answers(b"\x16\x03\x01\x00" * 1000))
_script("a head of 10 MiB", _answers(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 10 * 2**20))
_script("100 Continue without end", _answers(b"HTTP/1.1 100 Continue\r\n\r\n" * 100_000))
_script("chunks of one byte without end", _answers(
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 3_000_000
))  # fmt: skip
_script("an answer with a bad chunk size", _answers(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"))
_script("a length that is not kept", _answers(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n{"))
