"""`python -m tests.grafana`: writes the dashboards and the table of metrics anew; with `results` that of their figures."""

import asyncio
import sys

from tests.grafana.files import write_all
from tests.grafana.results import write_results

write_all()
if sys.argv[1:] == ["results"]:
    asyncio.run(write_results())
