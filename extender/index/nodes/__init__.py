"""What is on each node: its pods and the resources that they request."""
