"""Cases with the real scheduler's answers, run through the functions that the verbs use."""
