"""This process's one LISTEN connection, in a thread of its own, feeding `jobs.notices`.

daphne has no lifespan, so the ASGI modules start it when they are imported. In web processes a second thread says once
whether remote workers take part (`jobs.switch`), and then stamps that the control plane is up (`jobs.clock`).
"""

from __future__ import annotations

import logging
import random
import threading
import time

import psycopg
from django.conf import settings
from django.db import DatabaseError, connection

from jobs import notices, switch
from jobs.clock import stamp_alive

logger = logging.getLogger(__name__)

# Longer than this without a notice: ask the server something, so that a dead connection is noticed.
PING_SECONDS = 15.0
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0  # seconds between attempts to reconnect

_started = threading.Lock()


def start(*, stamps_alive: bool = False) -> None:
    """Start listening in the background; a second call does nothing."""
    if not _started.acquire(blocking=False):
        return
    threading.Thread(target=_listen_for_ever, name="pg-listener", daemon=True).start()
    if stamps_alive:
        threading.Thread(target=_stamp_for_ever, name="alive-stamps", daemon=True).start()


def _listen_for_ever() -> None:
    pause = FIRST_PAUSE
    while True:
        began = time.monotonic()
        try:
            _listen()
        except (psycopg.Error, OSError) as error:
            logger.warning("the listener lost the database: %s", error, extra={"action": "listener_lost"})
        if time.monotonic() - began > LONGEST_PAUSE:
            pause = FIRST_PAUSE
        time.sleep(pause * random.uniform(0.8, 1.2))  # so that processes do not come back all at once
        pause = min(pause * 2, LONGEST_PAUSE)


def _listen() -> None:
    """Listen until the connection breaks. Subscribes first and resyncs then, so that nothing falls between."""
    url = settings.OPENFACE_DIRECT_DATABASE_URL
    with psycopg.connect(
        url, autocommit=True, connect_timeout=5, keepalives_idle=10, keepalives_interval=5, keepalives_count=3
    ) as listening:
        listening.execute(f"LISTEN {notices.CHANNEL}")
        notices.resync()
        while True:
            for notify in listening.notifies(timeout=PING_SECONDS):
                notices.deliver(notify.payload)
            listening.execute("SELECT 1")


def _stamp_for_ever() -> None:
    declared = False
    while True:
        try:
            if not declared:
                switch.declare()
                declared = True
            stamp_alive()
        except DatabaseError as error:
            logger.warning("cannot stamp: %s", error, extra={"action": "stamp_failed"})
        finally:
            connection.close()
        time.sleep(settings.OPENFACE_ALIVE_SECONDS)
