"""A small scheduler: cache, queue, filters, preemption and extender client as in kube-scheduler."""
