"""`python -m grafana.generate`: writes the dashboards, the PrometheusRules of deploy/monitoring and `config/reference/metrics.md`.

`--runbook ADDRESS` is where runbook.md is published: dashboards get a link to it, and alerts.yaml and the PrometheusRules name the entry of
each alert. Without it they name none, because a relative address leads nowhere from a notification.

With `pictures` it also draws the dashboards from a real run, with `demo` the page of the demo that README.md shows, and with
`page` it photographs the page for README.md, in Chromium.
"""

import argparse
import asyncio

from grafana.generate.files import write_all
from grafana.generate.page import write_page_pictures
from grafana.generate.pictures import write_demo_picture, write_pictures

PICTURES = {"pictures": write_pictures, "demo": write_demo_picture, "page": write_page_pictures}

parser = argparse.ArgumentParser(prog="python -m grafana.generate", description="Writes what is generated.")
parser.add_argument("picture", nargs="?", choices=sorted(PICTURES), help="draw it, too")
parser.add_argument(
    "--runbook", metavar="ADDRESS", default="", help="where runbook.md is published (default: no links to it)"
)
arguments = parser.parse_args()
write_all(arguments.runbook)
if arguments.picture:
    asyncio.run(PICTURES[arguments.picture]())
