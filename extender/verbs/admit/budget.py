"""How much work one admission may do beyond what grows with the object: joining terms, and looking for contradictions.

1,000 policies of 64 required terms each would join 64 × 64 terms 1,000 times. The budget is counted in operations, so
the same object and policies always get the same answer.
"""

from __future__ import annotations

from typing import Final

OPERATIONS: Final = 6000
CLAUSES_READ: Final = 12_000
"""How many clauses are read to find contradictions. Beyond that none are found, and the requirements are joined."""


class Budget:
    """Operations that are left. An operation compares two node selector terms, or reads one clause."""

    def __init__(self, operations: int = OPERATIONS) -> None:
        self.left = operations

    def spend(self, operations: int) -> bool:
        """Takes operations; False, and none taken, where there are not enough left."""
        if operations > self.left:
            return False
        self.left -= operations
        return True
