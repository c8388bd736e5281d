"""Finding the best of many nodes: the requested nodes, their ranks and their points. Shared by the verbs."""
