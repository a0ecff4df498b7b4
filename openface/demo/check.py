"""`make demo CHECK=1`: do, unattended, what a person would try first, and measure how long each step takes.

Every claim is looked up where it cannot be pretended: the app's answer through the data plane, the container or process
at the engine or kernel.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import requests

from openface.demo.house import House
from openface.demo.machines import LOCAL
from openface.installation import free_port_base

WEB_ECHO = "demo/web-echo"
GPU_DIAGNOSTIC = "demo/gpu-diagnostic"
HEARTBEAT_SECONDS = 0.5
STALE_SECONDS = 4.0
SCALED = {
    "OPENFACE_GPU_WORKER_HEARTBEAT_SECONDS": str(HEARTBEAT_SECONDS),
    "OPENFACE_GPU_WORKER_STALE_SECONDS": str(STALE_SECONDS),
    "OPENFACE_GPU_WORKER_LEASE_SECONDS": "6",
    "OPENFACE_GPU_WORKER_POLL_SECONDS": "1",
    "OPENFACE_KEEPER_SECONDS": "0.5",
    "OPENFACE_ALIVE_SECONDS": "0.5",
    "OPENFACE_STOP_GRACE_SECONDS": "3",
}
START_SECONDS = 240.0  # a first build included
CHANGE_SECONDS = 60.0  # for anything that follows within a few heartbeats
_LOOK_SECONDS = 0.1


class CheckFailed(Exception):
    """A step did not come out as promised; the message says how."""


class Check:
    """The steps, in order, on one house. Each stops at what is wrong, by CheckFailed."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.seconds: dict[str, float] = {}
        self._browser = requests.Session()
        self._browser.trust_env = False  # a proxy of the machine has no business between us and loopback
        self._apps: set[str] = set()

    def run(self) -> None:
        """Go through all steps."""
        self._step("set_up", self.house.set_up)
        print(f"check: {self.house.engine.sentence}", file=sys.stderr, flush=True)
        self._step("start", self._start)
        self._step("running", self._wait_for_running)
        self._step("http", self._get)
        self._step("websocket", self._websocket)
        self._step("gpu_space", self._gpu_space)
        self._step("worker_restarted", self._restart_worker)
        self._step("worker_killed", self._kill_worker)
        self._step("worker_back", self._bring_worker_back)
        self._step("stop", self._stop)
        self._step("nothing_left", self._nothing_left)

    def _step(self, name: str, act: Callable[[], None]) -> None:
        print(f"check: {name.replace('_', ' ')} …", file=sys.stderr, flush=True)
        began = time.monotonic()
        try:
            act()
        finally:
            self.seconds[name] = round(time.monotonic() - began, 2)

    # --- the steps -------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        for space in (WEB_ECHO, GPU_DIAGNOSTIC):
            self.house.start_space(space)

    def _wait_for_running(self) -> None:
        self._wait(lambda: self._state(WEB_ECHO) == "running", START_SECONDS, f"{WEB_ECHO} is running")
        self._apps = self.house.apps_of(LOCAL)
        if len(self._apps) != 1:
            raise CheckFailed(f"one app should run on {LOCAL.name}, there are {len(self._apps)}")

    def _get(self) -> None:
        # By the portal's address, as a person would type it; it leads to the runtime's own origin.
        answer = self._browser.get(f"{self.house.installation.web_url}/run/{WEB_ECHO}/", timeout=20)
        if answer.status_code != 200:
            raise CheckFailed(f"GET /run/{WEB_ECHO}/ answers {answer.status_code}")
        if "text/html" not in answer.headers.get("Content-Type", ""):
            raise CheckFailed(f"GET /run/{WEB_ECHO}/ is not a page but {answer.headers.get('Content-Type')}")

    def _websocket(self) -> None:
        asyncio.run(asyncio.wait_for(self._echo(), CHANGE_SECONDS))

    async def _echo(self) -> None:
        words = f"hello {secrets.token_hex(8)}"
        address = f"{self.house.installation.data_url}/run/{WEB_ECHO}/ws"
        async with aiohttp.ClientSession() as session, session.ws_connect(address) as socket:
            await socket.send_str(words)
            async for message in socket:
                if words in str(message.data):
                    return
        raise CheckFailed(f"the WebSocket of {WEB_ECHO} ended without an echo")

    def _gpu_space(self) -> None:
        self._wait(lambda: self._state(GPU_DIAGNOSTIC) == "running", START_SECONDS, f"{GPU_DIAGNOSTIC} is running")
        report = self._ask(GPU_DIAGNOSTIC, "api/gpu").json()
        if report.get("runtime") != "openface-remote-gpu":
            raise CheckFailed(f"{GPU_DIAGNOSTIC} does not say what it is: {report}")
        if len(report.get("gpus", [])) != 1:
            raise CheckFailed(f"{GPU_DIAGNOSTIC} asked for one GPU and sees {len(report.get('gpus', []))}")

    def _restart_worker(self) -> None:
        self.house.stack.supervisor.restart(LOCAL.name)
        self._wait_for_same_app("the restart")

    def _kill_worker(self) -> None:
        self.house.stack.supervisor.kill(LOCAL.name)
        self._wait(
            lambda: self._state(WEB_ECHO) == "unavailable", STALE_SECONDS + CHANGE_SECONDS, f"{WEB_ECHO} is unavailable"
        )
        page = self._browser.get(
            f"{self.house.installation.data_url}/run/{WEB_ECHO}/", headers={"Accept": "text/html"}, timeout=20
        )
        if page.status_code != 503:
            raise CheckFailed(f"the page of an unavailable Space answers {page.status_code}, not 503")
        if self.house.apps_of(LOCAL) != self._apps:
            raise CheckFailed("the app did not outlive its worker")

    def _bring_worker_back(self) -> None:
        self.house.stack.supervisor.resume(LOCAL.name)
        self._wait_for_same_app("the return of its worker")

    def _stop(self) -> None:
        for space in (WEB_ECHO, GPU_DIAGNOSTIC):
            self.house.stop_space(space)
        answer = self._ask(WEB_ECHO)
        if answer.status_code != 503:
            raise CheckFailed(f"a stopped Space answers {answer.status_code}, not 503")

    def _nothing_left(self) -> None:
        # a Space's own data outlives its jobs
        self._wait(
            lambda: all(one.startswith("volume ") for one in self.house.remains()),
            CHANGE_SECONDS,
            "nothing of the jobs is left",
        )

    # --- looking ---------------------------------------------------------------------------------------------------

    def _wait_for_same_app(self, after: str) -> None:
        self._wait(lambda: self._state(WEB_ECHO) == "running", CHANGE_SECONDS, f"{WEB_ECHO} is running after {after}")
        if self.house.apps_of(LOCAL) != self._apps:
            raise CheckFailed(f"it is not the same app after {after}")

    def _state(self, space: str) -> str:
        """Return the Space's state, as who calls it learns it: an answer of the app means running."""
        answer = self._ask(space)
        if answer.status_code == 503:
            state: Any = answer.json().get("state")
            if state in ("failed", "cancelled", "completed"):
                raise CheckFailed(f"{space} is {state}: {answer.json().get('detail')}")
            return str(state)
        return "running" if answer.status_code == 200 else f"answering {answer.status_code}"

    def _ask(self, space: str, path: str = "") -> requests.Response:
        address = f"{self.house.installation.data_url}/run/{space}/{path}"
        return self._browser.get(address, headers={"Accept": "application/json"}, timeout=20)

    def _wait(self, condition: Callable[[], bool], seconds: float, promise: str) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise CheckFailed(f"not within {seconds:g} s: {promise}")
            if self.house.stack.stop_wanted.wait(_LOOK_SECONDS):
                raise CheckFailed("stopped by a signal")


# Settings of somebody's own installation, which the check must neither use nor meet.
_FOREIGN = {"DATABASE_URL", "DATABASE_URL_FILE", "PUBLIC_BASE_URL", "SECRET_KEY", "SECRET_KEY_FILE", "FORGEJO_URL"}


def check(port_base: int | None) -> bool:
    """Run the check in a state directory of its own, print one JSON line, and tell whether all went well."""
    for name in list(os.environ):
        if name in _FOREIGN or name.startswith(("OPENFACE_", "WORKER_", "GPU_WORKER_")):
            del os.environ[name]
    with tempfile.TemporaryDirectory(prefix="openface-check-") as directory:
        state = Path(directory)
        state.chmod(0o711)  # the database's account passes through it
        log = state / "log"
        result: dict[str, Any] = {"check": "demo", "ok": False}
        with log.open("w", encoding="utf-8") as output:
            house = House(state, port_base=port_base or free_port_base(), overrides=SCALED, output=output)
            house.stack.stop_on_signals()
            steps = Check(house)
            try:
                steps.run()
                result["ok"] = True
            except Exception as error:  # whatever it is, what was started must end, and the reason must be told
                result["error"] = f"{type(error).__name__}: {error}"
            finally:
                steps.seconds["take_down"] = _timed(house.take_down)
        house.forget_images()
        engine = getattr(house, "engine", None)
        if result["ok"] and (left := house.remains()):
            result.update(ok=False, error=f"left after everything ended: {', '.join(left)}")
        result.update(
            executor=engine.executor if engine else None,
            base_image=engine.base_image if engine else None,
            seconds=steps.seconds,
        )
        if not result["ok"]:
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            print("\n".join(["the last that the programs said:", *lines[-80:]]), file=sys.stderr, flush=True)
    print(json.dumps(result), flush=True)
    return bool(result["ok"])


def _timed(act: Callable[[], None]) -> float:
    began = time.monotonic()
    act()
    return round(time.monotonic() - began, 2)
