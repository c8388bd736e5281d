"""`python -m grafana.generate`: writes the dashboards and `config/reference/metrics.md`.

With `pictures` it also draws the dashboards from a real run, with `demo` the page of the demo that README.md shows, and with
`page` it photographs the page for README.md, in Chromium.
"""

import asyncio
import sys

from grafana.generate.files import write_all
from grafana.generate.page import write_page_pictures
from grafana.generate.pictures import write_demo_picture, write_pictures

PICTURES = {"pictures": write_pictures, "demo": write_demo_picture, "page": write_page_pictures}

write_all()
if sys.argv[1:]:
    asyncio.run(PICTURES[sys.argv[1]]())
