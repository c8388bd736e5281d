"""The commands that bring a cluster of their own: `extender demo` and `simulate`."""
