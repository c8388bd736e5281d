"""Long-lived loops: feeding the index, starting and stopping the parts. They own time, retries and order.

Decisions come from verbs. No HTTP here and no client: the loops declare the small protocols that they need.
"""
