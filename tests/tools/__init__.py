"""Programs for those who change the project: the bench, and what writes documents, manifests and pictures. A package for each."""
