"""Many rejected pods of one namespace, and one of another."""

from __future__ import annotations

from extender.model.objects import Pod
from extender.tasks.rejected_pods import Nominator, NominatorOptions, RejectedPodWriter, Requeuer
from tests.builders import extender_args, index_of, namespace, node, pod, pod_json
from tests.fakes import FakeClock, FakeWriter, running, until

CROWD = 3000
PER_SECOND = 50


class Crowd:
    """So many pending pods of one namespace, and then one of another; each would pass on a node that was not offered."""

    def __init__(self) -> None:
        self.clock, self.writer = FakeClock(), FakeWriter()
        names = [f"noise-{number}" for number in range(CROWD)]
        self.pods: list[Pod] = [*(pod(name, namespace="noise") for name in names), pod("honest", namespace="shop")]
        self.index = index_of(node("n1"), node("n2"), namespace("noise"), *self.pods)
        writes = RejectedPodWriter(self.index, self.writer, lambda _pod: ("n2", True))
        self.requeuer = Requeuer(writes, self.clock, PER_SECOND)
        self.nominator = Nominator(writes, self.clock, NominatorOptions(per_second=PER_SECOND))

    async def nominate(self) -> None:
        """Each pod is rejected on the one node that was asked about."""
        for each in self.pods:
            self.nominator.consider(extender_args(pod_json(each.name, namespace=each.namespace), "n1"))
        await self.nominator.run()

    async def requeue(self) -> None:
        """Each pod is rejected, and then something changes that the scheduler does not watch."""
        for each in self.pods:
            self.index.rejected.add(each, ("as it was then",))
        async with running(self.requeuer.run):
            await until(lambda: len(self.index.namespaces.changes) > 2)
            self.index.upsert(namespace("noise", changed="yes"))
            await until(lambda: False)

    async def requeue_nominated(self) -> None:
        """Each pod is nominated, and the scheduler does not ask about any."""
        for each in self.pods:
            self.index.assume(each, ("n2",), self.clock.now(), doubted=True)
            self.requeuer.await_request(each, "n2")
        await self.requeuer.run()
