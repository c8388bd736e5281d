"""What the API for people and tools answers with: explanations, pages of the cluster, what-ifs."""
