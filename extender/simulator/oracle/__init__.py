"""Pod affinity and topology spread by brute force: what the answers of the service are compared with."""
