"""The workload of the bench: scenario files, synthetic clusters, and the requests and watch events of their pods."""
