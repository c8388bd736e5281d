"""Work for people, such as explanations and pages: done in slices between the scheduler's requests."""
