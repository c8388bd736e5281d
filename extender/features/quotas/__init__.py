"""Limits on affinity across namespaces: the quota scope CrossNamespacePodAffinity, applied when pods are placed.

The API server charges such pods at creation (KEP-2249). Here a pod is charged while it is placed, because only placed pods keep
others away. The section `quota` of the settings enables it. From the JSON to the rejection:

- `schema` reads a ResourceQuota and, of a pod, what quotas charge. `charges` says which quota charges what.
- `table` keeps what placed pods use of each quota, from the events of the index. `settings` is the section.
- `rule` rejects a pod that is over a limit, or that reaches further than the settings allow.
- `crossing` measures affinity across namespaces for two metrics, also while quotas are disabled.
- `report` finds faults of quotas, for `extender quota report` and `extender doctor`. `native` writes limits as objects of
  the API server, for `extender quota generate`. `cli` has both commands.
"""
