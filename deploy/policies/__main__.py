"""`python -m deploy.policies`: writes crds.yaml, and the tables of fields in config/policies/README.md."""

from deploy.policies import crds, tables

crds.FILE.write_text(crds.as_text(), "utf-8")
tables.README.write_text(tables.as_text(tables.README.read_text("utf-8")), "utf-8")
