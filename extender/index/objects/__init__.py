"""What the index keeps of objects besides pods and nodes, what was deleted, and the subscribers to changes."""
