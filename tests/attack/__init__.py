"""Attacks on a running service: `make attack` plays all of them, tests/attack/test_attacks.py some.

A new one is a function in `requests`, `bodies`, `connections` or `streams` with the decorator of `attacks`; it says what
was answered. Whether the service stood still, what memory stayed and whether it still answers is measured around it.
"""
