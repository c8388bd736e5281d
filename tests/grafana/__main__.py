"""`python -m tests.grafana`: writes the dashboards and the table of metrics anew; with `pictures` those of a real run."""

import asyncio
import sys

from tests.grafana.files import write_all
from tests.grafana.pictures import write_pictures

write_all()
if sys.argv[1:] == ["pictures"]:
    asyncio.run(write_pictures())
