"""What the bench plays: scenario files, synthetic clusters, and the requests and watch events of their pods."""
