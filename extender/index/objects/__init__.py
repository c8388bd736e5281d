"""What the index keeps of objects besides pods and nodes, what was deleted, and who listens to changes."""
