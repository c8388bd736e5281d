"""The endpoints for people and tools, one module per subject. Start at `operations`, which lists them all.

Only clients that may change the service may use them: clients with a certificate of the role admin; without a client CA, clients on
this machine. Errors have the form of all errors, `failures.ErrorAnswer`.
"""
