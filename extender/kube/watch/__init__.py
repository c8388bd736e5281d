"""List and watch of one kind: bytes to lines, lines to objects, and what to do when a watch ends."""
