"""Preemption, from the plan to the binding of the preemptor: the writes, their retries and limits, their events.

No decision about victims: plans come from the verbs.
"""
