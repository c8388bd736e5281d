"""The commands about policies, quotas and groups: `extender policy`, `quota`, `groups`."""
