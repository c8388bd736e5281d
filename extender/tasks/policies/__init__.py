"""What follows from scheduling policies in the background: their status, events, and the counts that they change."""
