"""The HTTP side of the service: routes, handlers of about ten lines, and the one place that answers errors.

Handlers decode, call a verb and encode. A handler that branches on scheduling matters is a verb in hiding.
"""
