"""Many people with a live page open: each stream holds neither a database connection nor a thread."""

from __future__ import annotations

import asyncio
import time

import aiohttp

from benchmarks.measurement import Measurement, at_most, percentile
from tests.e2e.world import World

STREAMS = 200
POOL = 16  # OPENFACE_DATABASE_POOL_MAX of each server process
SERVERS = 2  # web and data
LISTENERS = SERVERS
KEEPER = 1
ASKED = 30


def measure(world: World) -> list[Measurement]:
    """Open 200 live pages, and ask the portal for its list meanwhile."""
    space = world.space("watched")
    return asyncio.run(_measure(world, space))


async def _measure(world: World, space: str) -> list[Measurement]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        alone = await _portal_ms(session, world)
        streams = []
        for _ in range(STREAMS):
            answer = await session.get(f"{world.web}/live/spaces/{space}/", timeout=aiohttp.ClientTimeout(total=None))
            assert answer.status == 200, f"stream refused: {answer.status}"
            await answer.content.readany()
            streams.append(answer)
        crowded = await _portal_ms(session, world)
        (backends,) = world.rows("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")[0]
        for answer in streams:
            answer.close()
    limit = POOL * SERVERS + LISTENERS + KEEPER + 1  # and the connection that counts
    return [
        at_most("sse_200_streams_backends", backends, "connections", limit),
        Measurement("portal_ms_p50_alone", round(percentile(alone, 0.5), 1), "ms"),
        Measurement("portal_ms_p50_with_200_streams", round(percentile(crowded, 0.5), 1), "ms"),
        Measurement("portal_ms_p95_with_200_streams", round(percentile(crowded, 0.95), 1), "ms"),
    ]


async def _portal_ms(session: aiohttp.ClientSession, world: World) -> list[float]:
    milliseconds = []
    for _ in range(ASKED):
        began = time.monotonic()
        async with session.get(f"{world.web}/spaces/") as answer:
            assert answer.status == 200
            await answer.read()
        milliseconds.append((time.monotonic() - began) * 1000)
    return milliseconds
