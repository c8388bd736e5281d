"""The simulated API server: stored objects, LIST, WATCH and writes over real HTTP, with hooks to inject faults."""
