"""`python -m tests.page`: makes the pictures of the page that README shows. Needs Chromium."""

from __future__ import annotations

import asyncio

from tests.page.pictures import write_pictures

if __name__ == "__main__":
    asyncio.run(write_pictures())
