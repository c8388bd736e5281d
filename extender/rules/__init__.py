"""The scheduling rules, one per module: prepared once for a pod, then applied to many nodes. Start at `rule`.

Rules do not know one another, do not count pods (the index does) and do not know the wire.
"""
