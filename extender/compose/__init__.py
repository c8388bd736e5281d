"""Builds each part of the service once and joins the parts. The only layer that imports all others.

Arguments, printing and exit codes belong to the command line. Each module builds one part and can be read by itself.
"""
