"""`python -m grafana.generate`: writes the dashboards and `config/reference/metrics.md`.

With `pictures` it also draws the dashboards from a real run, with `demo` the page of the demo that README.md shows.
"""

import asyncio
import sys

from grafana.generate.files import write_all
from grafana.generate.pictures import write_demo_picture, write_pictures

write_all()
if sys.argv[1:] == ["pictures"]:
    asyncio.run(write_pictures())
if sys.argv[1:] == ["demo"]:
    asyncio.run(write_demo_picture())
