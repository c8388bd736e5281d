"""The values that decisions work with: pods, nodes, selectors, terms, spread constraints, victims, verdicts.

Values only. Nothing here knows JSON, HTTP, a clock or the index; every floor may import it.
"""
