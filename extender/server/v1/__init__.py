"""The endpoints for people and tools, one module per subject. Start at `operations`, which lists them all.

Clients that may change the service may ask: those with a certificate of the role admin, or without a client CA those on
this machine. Errors have the form of all errors, `failures.ErrorAnswer`.
"""
