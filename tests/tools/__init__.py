"""Programs for those who change the project, a package for each. What writes files of deploy/ and grafana/ stands there."""
