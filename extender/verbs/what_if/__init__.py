"""Where one pod of a what-if would go: node fit, then the filter verb, then the scores, as kube-scheduler asks them."""
