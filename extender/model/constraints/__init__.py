"""What a pod asks of nodes and of other pods: labels, selectors, terms, spread, taints. Immutable values."""
