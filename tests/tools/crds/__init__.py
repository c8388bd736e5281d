"""The CRDs of scheduling policies and of placed groups, as documents."""
