"""Leader election: which replica holds the Lease, and when it has taken over from the one before.

The other tasks read `state` only.
"""
