"""Applies the changes of a what-if to an index of its own, and places the pods there, one after the other."""
