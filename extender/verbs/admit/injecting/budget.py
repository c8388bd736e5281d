"""How much work one admission may do beyond what grows with the object: directives, joining terms, contradictions.

1,000 policies of 64 required terms each would join 64 × 64 terms 1,000 times. The budget is counted in operations, so
the same object and policies always get the same answer. Directives are counted by their number alone, whatever the object
has of them, so that applying the same policies again stops at the same one.
"""

from __future__ import annotations

from typing import Final

OPERATIONS: Final = 6000
CLAUSES_READ: Final = 12_000
"""How many clauses are read to find contradictions. Beyond that none are found, and the requirements are joined."""

DIRECTIVES: Final = 20_000
"""The weight of the directives of all policies. 1,000 policies of six directives with two elements each weigh 18,000."""


class Budget:
    """Operations that are left: one compares two node selector terms, or reads one clause. ``directives``: the weight left."""

    def __init__(self, operations: int = OPERATIONS) -> None:
        self.left = operations
        self.directives = DIRECTIVES

    def spend(self, operations: int) -> bool:
        """Takes operations; False, and none taken, where there are not enough left."""
        if operations > self.left:
            return False
        self.left -= operations
        return True

    def spend_directives(self, weight: int) -> bool:
        """Takes the weight of one policy. False where it is not left; then no later policy is applied either."""
        self.directives -= weight
        return self.directives >= 0
