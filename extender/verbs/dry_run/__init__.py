"""The dry run of a preemption: which pods have to leave a node. Shared by the filter and the preempt verb."""
