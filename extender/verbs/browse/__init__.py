"""Pages of what the cluster holds, for people: domains, workloads, pods that wait, policies, groups.

Each function works in steps of a millisecond at most, between which the index may change: a page is not a snapshot. It
reads objects and sums, and leaves nothing behind in the index, whatever is asked for.
"""
