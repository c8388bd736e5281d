"""The HTTP side of the service: routes, handlers of about ten lines, and the one place that answers errors.

A handler decodes, calls a verb and encodes. It makes no scheduling decision of its own.
"""
