"""The one door to the apiserver: sessions, list and watch. The only place that imports the Kubernetes client.

Decides nothing and indexes nothing: it yields decoded objects to the loops in tasks.
"""
