"""`python -m tests.tools.crds`: writes the files of all CRDs in deploy/policies."""

from tests.tools.crds import group_placements, policies, topology_domains

policies.FILE.write_text(policies.as_text(), "utf-8")
group_placements.FILE.write_text(group_placements.as_text(), "utf-8")
topology_domains.FILE.write_text(topology_domains.as_text(), "utf-8")
