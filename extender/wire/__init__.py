"""Decodes JSON to model values and encodes answers: the scheduler's bodies, the API server's pages and events.

The only package with field names of the Kubernetes API. It does not import the index and decides nothing.
"""
