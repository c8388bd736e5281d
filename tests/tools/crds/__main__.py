"""`python -m tests.tools.crds`: writes the file of all CRDs in deploy/policies."""

from tests.tools.crds.file import FILE, as_text

FILE.write_text(as_text(), "utf-8")
