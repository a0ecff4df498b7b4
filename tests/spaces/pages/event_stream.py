"""A reader of server-sent events over a plain socket, as patient as its deadline."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from typing import Any

DEADLINE_SECONDS = 30.0  # a guard against hanging


class EventStream:
    """One open stream. `status` is the answer's; events are read on demand."""

    def __init__(self, port: int, path: str, *, session: str = "", last_event_id: str = "") -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_SECONDS)
        headers = {"Host": f"localhost:{port}", "Accept": "text/event-stream"}
        if session:
            headers["Cookie"] = f"openface_session={session}"
        if last_event_id:
            headers["Last-Event-ID"] = last_event_id
        self._connection.request("GET", path, headers=headers)
        self._response = self._connection.getresponse()
        self.status = self._response.status
        self.headers = self._response.headers
        self.last_id = ""

    def close(self) -> None:
        self._response.close()
        self._connection.close()

    def __enter__(self) -> EventStream:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def events(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (name, data) until the server ends the stream."""
        name, data = "", ""
        for raw in self._response:
            line = raw.decode().rstrip("\n")
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                data = line[6:]
            elif line.startswith("id: "):
                self.last_id = line[4:]
            elif not line and name:
                yield name, json.loads(data)
                name, data = "", ""

    def wait_for(self, name: str, **expected: Any) -> dict[str, Any]:
        """Return the first event of that name whose data has these values."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        for found, data in self.events():
            if found == name and all(data.get(key) == value for key, value in expected.items()):
                return data
            if time.monotonic() > deadline:
                break
        raise AssertionError(f"no event {name} with {expected} arrived")
