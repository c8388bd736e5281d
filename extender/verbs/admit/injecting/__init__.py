"""Injecting the directives of policies into a pod spec: what each adds, within which bounds, and how it is recorded."""
