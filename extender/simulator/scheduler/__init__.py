"""A small scheduling loop with the cache, queue, filters and preemption of kube-scheduler, and its extender client."""
