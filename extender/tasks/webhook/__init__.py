"""What keeps the admission webhook reachable: its certificates, and the two configurations by which the API server finds it."""
