"""What a sample of the nodes costs in quality."""
