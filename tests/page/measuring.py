"""How long the page takes to open on a large cluster: `python -m tests.page.measuring [NODES PODS]`.

`extender serve --snapshot` in a process of its own answers from a generated cluster. For each view: milliseconds from the
start of the navigation until its answer is on the screen, with an empty cache, and then what the tab holds and how long a
key press waits.
"""

import asyncio
import re
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import orjson

from grafana.generate.page import cluster_json
from tests.page.browser import Browser, browser

# By address: the selector of an element that is there once the view has its answer.
VIEWS: Final = {
    "": ".figures",
    "pending": "tbody tr",
    "topology": "tbody tr",
    "topology?key=kubernetes.io%2Fhostname": "tbody tr",
    "topology?namespace=data&selector=app%3Dapp-22": "tbody tr",
    "pods/shop/app-0-waits": ".summary",
    "constraints": "tbody tr",
    "constraints/search/app-1-0": ".outlet > p",
    "policies": ".outlet > p",
    "whatif?nodes=node-0001": "tbody tr",
}
_ANNOUNCED: Final = re.compile(rb'answering url="?(http://[^" ]+)')
LARGE: Final = (5000, 150_000)
_TIMES: Final = 3

_OPENED: Final = """
const [selector] = arguments;
return new Promise((resolve) => {
  const look = () => document.querySelector(selector) ? requestAnimationFrame(() => resolve(performance.now())) : requestAnimationFrame(look);
  look();
});
"""
_WHOLE_MAP: Final = "return !document.querySelector('main').innerText.includes('on the map.')"
_LONGEST_FRAME: Final = """
return new Promise((resolve) => {
  let [last, longest] = [performance.now(), 0];
  const ends = last + 3000;
  const frame = (now) => { longest = Math.max(longest, now - last); last = now; now < ends ? requestAnimationFrame(frame) : resolve(longest); };
  requestAnimationFrame(frame);
});
"""


async def measure(nodes: int, pods: int) -> None:
    """Prints a line for each view."""
    async with _serving(nodes, pods) as url, browser() as window:
        await window.devtools("Network.setCacheDisabled", cacheDisabled=True)
        for view, selector in VIEWS.items():
            times = sorted([await _opened(window, f"{url}/ui/#/{view}", selector) for _ in range(_TIMES)])
            longest = await window.script(_LONGEST_FRAME)
            elements = await window.script("return document.querySelectorAll('*').length")
            print(f"{view or 'overview':48} {times[0]:6.0f} to {times[-1]:6.0f} ms, longest frame {longest:4.0f} ms, {elements} elements")  # fmt: skip
        await window.open("about:blank")
        await window.open(f"{url}/ui/#/topology?key=kubernetes.io%2Fhostname")
        await window.until("return document.querySelector('canvas')?.getAttribute('aria-label')")
        await window.until(_WHOLE_MAP)
        print(f"the whole map by hostname {await window.script('return performance.now()'):6.0f} ms")


async def _opened(window: Browser, url: str, selector: str) -> float:
    await window.open("about:blank")
    await window.open(url)
    return float(await window.script(_OPENED, selector))


@asynccontextmanager
async def _serving(nodes: int, pods: int) -> AsyncIterator[str]:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "cluster.json"
        file.write_bytes(orjson.dumps({"kind": "List", "items": list(cluster_json(nodes, pods))}))
        command = (sys.executable, "-m", "extender", "serve", "--snapshot", str(file), "--bind-address", "127.0.0.1:0")
        process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=asyncio.subprocess.STDOUT)
        try:
            yield await _announced(process)
        finally:
            process.terminate()
            await process.wait()


async def _announced(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async for line in process.stdout:
        if found := _ANNOUNCED.search(line):
            return found[1].decode()
    raise RuntimeError("the service ended")


if __name__ == "__main__":
    asyncio.run(measure(*map(int, sys.argv[1:3] or LARGE)))
