"""What is written to pods that the filter rejected: a nomination outside the scheduler's sample, or a requeue."""
