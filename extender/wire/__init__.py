"""Bytes to model values and back: the scheduler's bodies and the apiserver's pages and events.

The only place that knows field names of the outside. Knows nothing of the index and decides nothing.
"""
