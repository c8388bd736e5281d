"""Mutants of the pure floors: small changes of the code, one at a time, each of which some test must notice.

Run by `make mutants`; nothing here is part of `make test` but the tests of the tool itself.
"""
