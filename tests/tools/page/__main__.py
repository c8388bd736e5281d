"""`python -m tests.tools.page`: makes the pictures of the page that README shows. `python -m tests.tools.page measure`: how fast it opens.

Both need Chromium.
"""

import asyncio
import sys

from tests.tools.page.measuring import measure
from tests.tools.page.pictures import write_pictures

LARGE = (5000, 150_000)

if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        nodes, pods = map(int, sys.argv[2:4] or LARGE)
        asyncio.run(measure(nodes, pods))
    else:
        asyncio.run(write_pictures())
