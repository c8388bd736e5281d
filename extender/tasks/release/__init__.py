"""Releases groups of gated pods: decides, reserves, writes the decision down, and lets the pods go. Begin with `reconciler.py`."""
