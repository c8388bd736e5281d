"""Builds each part of the service once and joins them: the only floor that imports every other one.

No arguments, no printing, no exit codes: those are the command line's. Each module builds one part and can be read alone.
"""
