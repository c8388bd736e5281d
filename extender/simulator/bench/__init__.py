"""Measures how long decisions take: synthetic clusters of a given size, questions as kube-scheduler asks them, figures.

Everything is data: scenario files say what is played and what must be kept. Nothing here decides, serves or prints;
what is measured is handed in by the command line, so that it is the very service that runs elsewhere.
"""
