"""The index: counts that each watch event updates, and the views through which rules and verbs read them.

No I/O, no await, no clock. ``objects`` holds the objects of each kind, ``counts`` the pods per domain, ``claims`` the
assumed, nominated and rejected pods, ``nodes`` the pods on each node; ``cluster`` joins them, and ``audit`` recounts
all of them from the objects alone. Rules and verbs import `view` and nothing else from here; tasks write through
`cluster`.
"""
