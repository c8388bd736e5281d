"""Pages of what the cluster holds, for people: domains, workloads, pods that wait, policies, groups.

Each function works in steps of at most a millisecond. The index may change between steps, so a page is not a snapshot. The functions
read objects and sums, and leave nothing behind in the index, whatever a client requests.
"""
