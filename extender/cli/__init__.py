"""The command line and the composition root: reads files, builds each part once, runs it.

The only reader of files and of the environment. Nothing imports it.
"""
