"""The command line: parses arguments, reads files and the environment, runs what `compose` builds.

No other package imports it.
"""
