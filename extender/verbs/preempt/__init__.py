"""The preempt verb: what becomes of the candidate nodes that kube-scheduler offers. Start at `decision`."""
