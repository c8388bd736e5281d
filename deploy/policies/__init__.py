"""The kinds of the extender: their CRDs, and the tables of fields in config/policies/README.md, both by the declaration of the fields."""
