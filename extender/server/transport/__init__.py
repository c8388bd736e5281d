"""Sockets, connections and TLS, below HTTP requests: limits, turns and certificates."""
