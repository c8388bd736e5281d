"""Derives findings about an installation from facts: what is wrong, and the remedy.

Pure: no I/O and no clock. `cli.doctor` gathers the facts from the service, the API server and files, and prints the
findings.
"""
