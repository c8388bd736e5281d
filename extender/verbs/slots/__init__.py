"""Slots of a group of pods: finds room for all of them on the nodes of a domain, and decides whether a pod may leave its own."""
