"""Derives findings about an installation from facts: what is wrong, and the remedy.

No I/O and no clock. `cli.doctor` reads the facts from the service, the API server and files, and prints the findings.
"""
