"""The limits on what pods may ask for: the section `limits` of the configuration document.

A file of its own beside `settings`, which includes the section.
"""

from extender.model.documents import AtLeastOne, Section, require_positive
from extender.model.units import ByteSize


class NamespaceLimits(Section, frozen=True, cache_hash=True):
    """Limits on what the constraints of all pods of one namespace use together; the budget of the namespace.

    In offload mode a pod that needs more than is left is rejected until pods of its namespace are deleted. In augment
    mode the use is only shown.
    """

    selectors: AtLeastOne = 20_000
    overlapping_selectors: AtLeastOne = 1000
    topology_keys: AtLeastOne = 16
    cross_namespace_terms: AtLeastOne = 1000
    compile_steps: AtLeastOne = 400_000


class ConstraintLimits(Section, frozen=True, cache_hash=True):
    """Limits on the constraints of one pod, each for the whole pod. `pod_bytes`: labels and constraints as JSON.

    A pod above a limit is rejected in offload mode, and left to the in-tree plugins in augment mode. `per_namespace`
    limits what the pods of one namespace use together.
    """

    pod_bytes: ByteSize = ByteSize(64 * 2**10)
    affinity_terms: AtLeastOne = 100
    topology_spread_constraints: AtLeastOne = 32
    topology_keys: AtLeastOne = 16
    namespaces: AtLeastOne = 500
    label_requirements: AtLeastOne = 500
    node_selector_terms: AtLeastOne = 100
    node_requirements: AtLeastOne = 200
    selector_values: AtLeastOne = 2000
    tolerations: AtLeastOne = 100
    host_ports: AtLeastOne = 200
    per_namespace: NamespaceLimits = NamespaceLimits()

    def __post_init__(self) -> None:
        require_positive(self, "pod_bytes")
