"""Tests, on the same floors as the package; laws and parity beside them."""
