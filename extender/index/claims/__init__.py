"""Nodes that pods lay claim to before the watch shows them there: assumed, nominated; and pods that were rejected."""
