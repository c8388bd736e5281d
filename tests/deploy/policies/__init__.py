"""The CRDs of scheduling policies: what they refuse."""
