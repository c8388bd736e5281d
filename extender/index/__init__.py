"""The counts, kept true one change at a time, and the read-only view that decisions are given.

No I/O, no await, no clock. Rules and verbs import `view` and nothing else from here; tasks write through `cluster`.
"""
