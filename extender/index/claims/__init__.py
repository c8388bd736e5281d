"""Claims of pods on nodes before the watch shows the pods there: assumed and nominated pods. Also rejected pods."""
