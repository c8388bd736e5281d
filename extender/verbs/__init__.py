"""Every decision as a plain function from a request, the view and the settings to an answer.

No await, no effects, no clock. The server, the tasks and the command line call these; verbs do not call each other.
"""
