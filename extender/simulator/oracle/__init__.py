"""The oracle: pod affinity and topology spread by brute force, to check the answers of the service."""
