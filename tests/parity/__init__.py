"""Cases with the answers of the in-tree plugins, run through the very functions that the verbs use."""
