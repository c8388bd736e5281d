"""The embedded API server: stored objects, LIST, WATCH and writes over real HTTP, with points to inject faults."""
