"""Objects other than pods and nodes, and the subscribers to changes."""
