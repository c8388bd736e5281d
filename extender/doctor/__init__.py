"""Findings about a set-up, made from facts: what is wrong, and what to do about it.

Pure: no I/O and no clock. `cli.doctor` gathers the facts from the service, the apiserver and files, and prints.
"""
