"""Streams the words back, one at a time."""

import asyncio

from switchroom.agent import Run


async def agent(run: Run):
    for word in run.text.split():
        yield word + " "
        await asyncio.sleep(0.1)
