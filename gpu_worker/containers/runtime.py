"""One container of ours."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from docker.models.containers import Container
from docker.types import CancellableStream

from gpu_worker.commands import Cancel
from gpu_worker.containers import results
from gpu_worker.containers.connection import Connection, Missing, engine_errors
from gpu_worker.containers.limit_watch import LimitWatch
from gpu_worker.containers.log_follower import follow_log
from gpu_worker.containers.networks import JobNetworks
from gpu_worker.errors import EngineError, EngineSilent, JobFailed
from gpu_worker.executor import RuntimeState
from gpu_worker.journal import JobFacts
from gpu_worker.sockets import listening_sockets
from gpu_worker.start_failures import explain

STOP_POLL_SECONDS = 0.1
# Of a program that is run beside an app: it may be one that the image brought, and say what it likes for ever.
EXECUTE_SECONDS = 20.0
EXECUTE_BYTES = 64 * 1024


class ContainerRuntime:
    def __init__(self, engine: Connection, networks: JobNetworks, container: Container, facts: JobFacts) -> None:
        self._engine, self._networks, self._facts = engine, networks, facts
        self._id = str(container.id)
        self._limits = LimitWatch(engine, self._id)
        image = container.attrs.get("Image") or container.attrs.get("ImageID")
        self._image_id = image if isinstance(image, str) else None

    @property
    def reference(self) -> str:
        return self._id[:12]

    @property
    def image_id(self) -> str | None:
        return self._image_id

    def address(self) -> tuple[str, int]:
        networks: Mapping[str, Any] = self._inspect().attrs["NetworkSettings"]["Networks"]
        self._networks.join(self._facts)
        for network in networks.values():
            if network.get("IPAddress"):
                return str(network["IPAddress"]), self._facts.port
        raise EngineError("the container has no address")

    def state(self) -> RuntimeState:
        try:
            state = self._inspect().attrs["State"]
        except Missing:
            return RuntimeState("gone")
        status = str(state["Status"])
        if status in ("running", "paused", "created"):
            return RuntimeState(status)
        if status == "restarting":
            return RuntimeState("running")
        return RuntimeState("exited", exit_code=int(state["ExitCode"]), oom_killed=bool(state["OOMKilled"]))

    def start(self) -> None:
        if self._facts.mode == "batch":
            results.make_directory(self._engine, self._id)
        try:
            with engine_errors():
                self._engine().api.start(self._id)
        except EngineSilent:
            raise
        except EngineError as problem:
            raise JobFailed("start_failed", explain(str(problem))) from problem

    def follow(self, position: str | None, *, over: Cancel, stop: Cancel) -> Iterator[tuple[bytes, str]]:
        return follow_log(self._engine, self._id, position, over=over, stop=stop, ended=self._has_ended)

    def _has_ended(self) -> bool:
        try:
            return self.state().status in ("exited", "gone")
        except EngineError:
            return False

    def environment(self) -> Mapping[str, str]:
        pairs = (entry.partition("=") for entry in self._inspect().attrs["Config"]["Env"] or [])
        return {name: value for name, _, value in pairs}

    def listening(self) -> Sequence[str] | None:
        pid = self._inspect().attrs["State"].get("Pid")
        return listening_sockets(int(pid)) if pid else None

    def execute(self, argv: Sequence[str]) -> tuple[int | None, bytes]:
        with engine_errors():
            api = self._engine().api
            started = api.exec_create(self._id, list(argv))["Id"]
            output, whole = _short_answer(api.exec_start(started, stream=True))
            code = api.exec_inspect(started)["ExitCode"] if whole else None
        return code, output

    def results(self, path: str = "") -> Generator[bytes, None, None] | None:
        found = results.read(self._engine, self._id, path)
        if found is None and self.state().status == "gone":
            raise EngineError("the container is gone")
        return found

    def result_paths(self) -> Sequence[str]:
        return results.paths(self._engine, self._id)

    def news(self) -> Sequence[str]:
        return self._limits.news()

    def stop(self, grace_seconds: float) -> None:
        state = self.state()
        if state.status == "paused":
            with engine_errors():
                self._engine().api.unpause(self._id)  # a frozen process hears no signal
        if state.status not in ("running", "paused"):
            return
        self._kill("SIGTERM")
        deadline = time.monotonic() + grace_seconds
        while self.state().status == "running" and time.monotonic() < deadline:
            time.sleep(STOP_POLL_SECONDS)
        if self.state().status == "running":
            self._kill("SIGKILL")

    def _kill(self, signal: str) -> None:
        try:
            with engine_errors():
                self._engine().api.kill(self._id, signal)
        except EngineSilent:
            raise
        except EngineError:
            pass  # it ended by itself in between

    def remove(self) -> None:
        try:
            with engine_errors():
                self._engine().containers.get(self._id).remove(force=True, v=True)
        except Missing:
            pass
        self._networks.remove(self._facts)

    def _inspect(self) -> Container:
        with engine_errors():
            return self._engine().containers.get(self._id)


def _short_answer(stream: CancellableStream[bytes]) -> tuple[bytes, bool]:
    """What *stream* brings in time, up to EXECUTE_BYTES, and whether that is all. The stream is closed then.

    The SDK waits without end for the next piece, so the deadline is another thread that closes the stream.
    """
    output, cut = bytearray(), threading.Event()

    def end() -> None:
        cut.set()
        with contextlib.suppress(OSError):
            stream.close()

    deadline = threading.Timer(EXECUTE_SECONDS, end)
    deadline.daemon = True
    deadline.start()
    try:
        for piece in stream:
            output += piece
            if len(output) > EXECUTE_BYTES:
                cut.set()
                break
    except ValueError:  # closed between two pieces
        if not cut.is_set():
            raise
    finally:
        deadline.cancel()
        deadline.join()
        # the stream's own close would leave the socket to the garbage collector
        stream._response.close()  # type: ignore[attr-defined]
    return bytes(output[:EXECUTE_BYTES]), not cut.is_set()
