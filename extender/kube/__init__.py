"""The only access to the API server: sessions, list, watch and writes. Only this package imports the Kubernetes client.

Decides nothing and indexes nothing: it yields decoded objects to the loops in tasks.
"""
