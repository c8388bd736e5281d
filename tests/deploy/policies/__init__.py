"""The CRDs of scheduling policies: what writes them, and what they refuse."""
