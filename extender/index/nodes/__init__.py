"""Nodes by number: their domains, the pods on them, and the resources that the pods request."""
