"""Every decision as a plain function from question, view and settings to an answer.

No await, no effects, no clock. The server, the loops and the command line call these; verbs do not call each other.
"""
