"""The explain verb: why a pod is pending, and which changes would let it pass. Start at `explaining`.

Asks the rules that filter, on the live view, in steps. Changes are tried on the counts and undone within one step.
"""
