"""README's quick start, followed literally by a shell, in front of the embedded control plane.

tests/e2e/test_quick_start.py follows it in front of a real one, with a real kube-scheduler.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import yaml

from extender.simulator.apiserver.kinds import PODS
from extender.simulator.apiserver.server import ApiServer
from extender.simulator.json_objects import node_of
from extender.simulator.scheduler.extender_client import ExtenderEntry
from extender.simulator.scheduler.loop import LoopSettings, SchedulingLoop
from tests.e2e.programs import free_ports
from tests.quick_start import KUBEADM, blocks, follow, needs_shell_tools, prepared, shell
from tests.simulator.plain import HOSTNAME, anti_affinity, namespace, node, pod, term

README = Path("README.md").read_text("utf-8")


async def place_a_pod(api: ApiServer, configuration: str, name: str = "web", **spec: Any) -> str:
    """Have a scheduler with that configuration place a pod; the node that it gets."""
    (entry,) = yaml.safe_load(configuration)["extenders"]
    entry = ExtenderEntry(
        url_prefix=entry["urlPrefix"], filter_verb=entry["filterVerb"], prioritize_verb=entry.get("prioritizeVerb", "")
    )
    loop = SchedulingLoop(api.store, api.url, entry, LoopSettings())
    await loop.start()
    api.operations.create(PODS, pod(name, **spec))
    assert await loop.settle(within=30.0, calm=0.2)
    await loop.stop()
    return node_of(api.store.find(PODS, f"default/{name}").read())


def checks_in(text: str) -> list[str]:
    """The names of the checks that passed, in order."""
    return re.findall(r"^\[\+\](\S+) ok", text, re.MULTILINE)


async def test_the_quick_start_of_the_readme_leads_to_a_set_up_without_a_finding(tmp_path: Path) -> None:
    async with ApiServer() as api:
        kubeconfig = api.write_kubeconfig(tmp_path / "kubeconfig")
        serve, generate, _, prove = prepared(tmp_path, kubeconfig)
        api.store.load([namespace("default"), node("node-a", "z1")])
        environment = {
            "KUBECONFIG": str(kubeconfig),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        async with shell(tmp_path, environment) as process:
            ready = await follow(process, serve)
            assert "readyz check passed" in ready
            assert checks_in(ready) == checks_in(README)
            await follow(process, generate)
            assert await place_a_pod(api, await follow(process, "cat kube-scheduler.yaml")) == "node-a"
            proven = await follow(process, prove)
    assert "0 errors, 0 warnings" in proven
    assert 'extender_requests_total{code="200",verb="filter"} 1.0' in proven


async def test_the_page_about_the_switch_to_offload_leads_there_without_a_warning(tmp_path: Path) -> None:
    """config/how-to/prove-the-switch.md; tests/e2e/test_shadow.py follows it with a real kube-scheduler."""
    needs_shell_tools()
    (port,) = free_ports(1)
    typed = [each.replace(":8888", f":{port}") for each in blocks("config/how-to/prove-the-switch.md", "prove")]
    own_port = f"shadow: true\nserver: {{bindAddress: 127.0.0.1:{port}}}\n"
    begin, _, look, switch, check = [each.replace("shadow: true\n", own_port) for each in typed]
    apart = anti_affinity(term(HOSTNAME, app="web"))
    async with ApiServer() as api:
        kubeconfig = api.write_kubeconfig(tmp_path / "kubeconfig")
        api.store.load([namespace("default"), node("node-a", "z1"), node("node-b", "z1")])
        environment = {
            "KUBECONFIG": str(kubeconfig),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        async with shell(tmp_path, environment) as process:
            begun = await follow(process, begin.replace(KUBEADM, str(kubeconfig)))
            assert "shadow.yaml: valid (ExtenderConfiguration, mode augment)\n" in begun
            configuration = await follow(process, "cat kube-scheduler.yaml")
            assert await place_a_pod(api, configuration, labels={"app": "web"}, affinity=apart)
            await follow(process, f"until {look_at(port)} | grep -q '\"compared\":1'; do sleep 0.1; done")
            looked = await follow(process, look)
            running = switch.replace("kube-scheduler --config=kube-scheduler.yaml", "sleep 100")
            await follow(process, f"sleep 100 &\n{running.replace(KUBEADM, str(kubeconfig))}")
            configuration = await follow(process, "cat kube-scheduler.yaml")
            assert await place_a_pod(api, configuration, "next", labels={"app": "web"}, affinity=apart)
            checked = await follow(process, check)
    assert "info: shadow: 1 decision compared, 0 differ (InterPodAffinity 1, PodTopologySpread 0 agreed)\n" in looked
    assert "    wait until 100 of each agreed; a rule that no pod uses need not be proved\n" in looked
    assert '"differ": 0' in looked
    assert "0 errors, 0 warnings; checked: service" in looked
    assert "0 errors, 0 warnings; checked: service" in checked


def look_at(port: int) -> str:
    return f"curl --silent http://127.0.0.1:{port}/debug/shadow"
