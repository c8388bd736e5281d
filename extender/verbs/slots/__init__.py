"""Slots of a pod group: finds room for all of its pods on the nodes of a domain, and decides whether a pod may leave its slot."""
