"""The scheduling rules, one idea per module: prepared once for a pod, asked once for each node.

Rules do not know one another, do not count pods (the index does) and do not know the wire.
"""
