"""A GPU that does not give back what an app had used is kept from others, and it is told who holds it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpu_worker import gpu_owners
from gpu_worker.executor import Found
from gpu_worker.gpu_release import ReleaseWatch
from gpu_worker.gpu_use import Left, Use, left_on, told
from gpu_worker.journal import JobFacts
from gpu_worker.protocol import ForeignProcess, Gpu, GpuUse
from tests.gpu_worker.commands_of_owner import Command
from tests.gpu_worker.control_plane import ControlPlane, Lease
from tests.gpu_worker.nvml import build_nvml_stub
from tests.gpu_worker.worker import WorkerProcess, eventually, make_repository

Make = Callable[..., WorkerProcess]

LEASE, CONTAINER = "7be19a44-0c5d-4d2b-bf13-98e6a1c0d572", "4c01db0b339c" + "0" * 52
BEFORE = Use(9000, unlisted_mib=300)
GAME = ForeignProcess(4711, "game", 9000)


def card(*, used: int, ours: tuple[GpuUse, ...] = (), foreign: tuple[ForeignProcess, ...] = (), **more: object) -> Gpu:
    facts: dict[str, object] = {"uuid": "GPU-aaaa", "index": 0, "total_vram_mib": 24564, "free_vram_mib": 24564 - used}
    return Gpu(ours=ours, foreign=foreign, **facts | more)  # type: ignore[arg-type]  # plain facts of a Gpu


def app(*, reference: str = CONTAINER[:12]) -> Found:
    facts = JobFacts(
        job="job", lease=LEASE, attempt=1, kind="gpu", mode="service", owner="alice", repo="lab", repository_id="r",
        revision="0" * 40, port=7860, gpus=("GPU-aaaa",),
    )  # fmt: skip
    return Found(facts, reference, "gone")


class TestWhatIsLeft:
    def test_memory_that_is_back_leaves_nothing(self) -> None:
        assert left_on(card(used=300), LEASE, BEFORE) is None

    def test_what_a_process_of_the_container_holds_is_left_with_its_id(self) -> None:
        gpu = card(used=5300, ours=(GpuUse(LEASE, 5000, (4711,)),))

        assert left_on(gpu, LEASE, BEFORE) == Left("GPU-aaaa", "GPU 0", 5000, (4711,))

    def test_what_nobody_who_is_listed_holds_is_left(self) -> None:
        assert left_on(card(used=5300), LEASE, BEFORE) == Left("GPU-aaaa", "GPU 0", 5000)

    def test_it_is_never_more_than_the_app_had(self) -> None:
        left = left_on(card(used=20_000), LEASE, BEFORE)

        assert left is not None and left.mib == 9000

    @pytest.mark.parametrize(
        ("gpu", "before"),
        [
            (card(used=9300, foreign=(GAME,)), BEFORE),
            (card(used=9300, ours=(GpuUse("another-lease", 9000),)), BEFORE),
            (card(used=800), BEFORE),
            (card(used=9300, foreign=(ForeignProcess(4711, "game", None),)), BEFORE),
            (card(used=9300, ours=(GpuUse(LEASE, None),)), BEFORE),
            (card(used=9300), Use(9000, unlisted_mib=None)),
            (card(used=9300, healthy=False), BEFORE),
            (card(used=9300, mig=True), BEFORE),
            (card(used=9300, free_vram_mib=None), BEFORE),
        ],
        ids=[
            "a process of others explains it",
            "another job explains it",
            "no more than comes and goes",
            "a process of others of unknown use",
            "its own use is not known",
            "not known before",
            "a GPU that is ill",
            "a card that is split up",
            "a driver that does not tell",
        ],
    )
    def test_nothing_is_held_against_an_app_that_others_explain_or_nobody_can_measure(
        self, gpu: Gpu, before: Use
    ) -> None:
        assert left_on(gpu, LEASE, before) is None

    def test_the_sentence_names_amount_holder_and_remedy(self) -> None:
        held = told([Left("GPU-aaaa", "GPU 0", 5000, (4711,))], "alice/lab")
        unlisted = told([Left("GPU-aaaa", "GPU 0", 5000)], "alice/lab")

        assert held.startswith("GPU 0 has not released 5000 MiB of alice/lab, which has ended: held by process 4711 ")
        assert "kill -9" in held
        assert "no process that is listed holds it. Restart this machine" in unlisted


class TestTheWatch:
    def seen(self, *looks: Gpu) -> ReleaseWatch:
        """A watch that saw these looks while the app ran."""
        watch = ReleaseWatch()
        for gpu in looks:
            watch.see([gpu], watch.awaited())
        return watch

    RUNNING = card(used=9300, ours=(GpuUse(LEASE, 9000, (4711,)),))

    def test_what_is_left_counts_as_the_apps_own_use(self) -> None:
        watch = self.seen(self.RUNNING)
        watch.gone(app(), watch.ending(LEASE))

        (gpu,) = watch.see([card(used=9300)], watch.awaited())

        assert gpu.ours == (GpuUse(LEASE, 9000),), "so it is not shown as others' use"

    def test_a_look_that_began_before_the_app_was_gone_tells_nothing(self) -> None:
        watch = self.seen(self.RUNNING)
        awaited = watch.awaited()
        watch.gone(app(), watch.ending(LEASE))
        watch.see([card(used=9300)], awaited)

        assert watch.left_of(LEASE, timeout=0.01) is None

    def test_what_is_seen_while_the_app_is_being_killed_is_no_measure(self) -> None:
        watch = self.seen(self.RUNNING)
        watch.ending(LEASE)
        watch.see([card(used=9300, ours=(GpuUse(LEASE, 0, (4711,)),))], ())

        assert watch.ending(LEASE) == {"GPU-aaaa": BEFORE}

    def test_an_app_that_had_given_it_back_long_before_its_end_owes_nothing(self) -> None:
        idle = card(used=300)

        assert self.seen(self.RUNNING, idle).ending(LEASE)["GPU-aaaa"].mib == 9000, "it may have ended just now"
        assert self.seen(self.RUNNING, idle, idle).ending(LEASE) == {}

    def test_after_the_worker_has_been_told_to_end_nobody_waits(self) -> None:
        watch = self.seen(self.RUNNING)
        watch.gone(app(), watch.ending(LEASE))
        watch.close()

        assert watch.left_of(LEASE, timeout=60) == ()

    def test_a_process_in_the_container_that_is_gone_is_still_its_own(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(gpu_owners, "PROC", tmp_path)
        (tmp_path / "4711").mkdir()
        (tmp_path / "4711" / "cgroup").write_text(f"0::/docker/{CONTAINER} (deleted)\n")
        watch = self.seen(self.RUNNING)
        assert gpu_owners.GpuOwners(watch.awaited()).lease_of(4711) is None

        watch.gone(app(), watch.ending(LEASE))

        assert gpu_owners.GpuOwners(watch.awaited()).lease_of(4711) == LEASE


# What the driver tells is in a file; at its end the app writes there what the driver shall tell from then on.
APP = """
import http.server, os, signal, sys

def end(*_):
    with open(os.environ["DRIVER"] + ".new", "w") as file:
        file.write(os.environ["AFTERWARDS"] + "\\n")
    os.replace(os.environ["DRIVER"] + ".new", os.environ["DRIVER"])
    os._exit(0)

signal.signal(signal.SIGTERM, end)
http.server.HTTPServer(("127.0.0.1", int(os.environ["PORT"])), http.server.SimpleHTTPRequestHandler).serve_forever()
"""
GPU = "uuid=GPU-aaaa name=NVIDIA_RTX_4090 total=24564 free={free} mig=0"
FREE, TAKEN = GPU.format(free=24000), GPU.format(free=15000)


class Machine:
    """A worker on a machine with one GPU that a stand-in for the driver tells of, and a job that runs on it."""

    def __init__(self, plane: ControlPlane, make_worker: Make, library: Path, driver: Path) -> None:
        self.plane, self.driver = plane, driver
        self.tells(FREE)
        settings = {"LD_LIBRARY_PATH": str(library), "STUB_NVML_FILE": str(driver)}
        self.worker = make_worker(**settings).start()

    def tells(self, line: str) -> None:
        new = self.driver.with_suffix(".test")
        new.write_text(f"{line}\n")
        new.rename(self.driver)

    def ran(self, *, used: str = "9000", afterwards: str) -> Lease:
        """A job that was seen to use the GPU and was stopped then."""
        revision = make_repository(self.plane.git_root, "lab", {"app.py": APP})
        environment = {"DRIVER": str(self.driver), "AFTERWARDS": afterwards}
        job = self.plane.queue_job(
            "lab", revision, kind="gpu", gpus=["GPU-aaaa"], app_file="app.py", environment=environment
        )
        eventually(lambda: self.plane.state(job) == "running", what="the app")
        lease = self.plane.lease_of(job)
        assert lease is not None
        pid = self.worker.journal()[0]["process"]["pid"]
        self.tells(f"{TAKEN} procs={pid}:{used}")
        seen = [{"lease": lease.id, "mib": None if used == "-" else int(used)}]
        eventually(lambda: self.plane.beats[-1]["gpus"][0]["ours"] == seen, what="its use")
        self.plane.stop_job(job)
        eventually(lambda: lease.released, what="its end")
        return lease

    def reason(self) -> str | None:
        holds = self.plane.beats[-1]["holds"]
        return holds[0]["reason"] if holds else None


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_nvml_stub(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def machine(plane: ControlPlane, make_worker: Make, library: Path, tmp_path: Path) -> Iterator[Machine]:
    yield Machine(plane, make_worker, library, tmp_path / "gpus.txt")


def test_a_gpu_that_does_not_release_its_memory_stays_reserved_until_it_does(
    machine: Machine, plane: ControlPlane, command: Command
) -> None:
    lease = machine.ran(afterwards=TAKEN)

    eventually(lambda: machine.reason() is not None, what="the reason")
    sentence = "GPU 0 has not released 9000 MiB of alice/lab, which has ended; no process that is listed holds it."
    assert str(machine.reason()).startswith(sentence)
    assert plane.beats[-1]["gpus"][0]["ours"] == [{"lease": lease.id, "mib": 9000}]
    assert not lease.cleared
    assert command(machine.worker, "status")["jobs"][0]["not_released"].startswith(sentence)

    machine.worker.kill()
    machine.worker.start()
    eventually(lambda: len(plane.registers) == 2, what="the next worker")
    assert [(hold["state"], hold["gpus"]) for hold in plane.registers[-1]["holds"]] == [("exited", ["GPU-aaaa"])]
    assert str(plane.registers[-1]["holds"][0]["reason"]).startswith(sentence)

    machine.tells(FREE)
    eventually(lambda: lease.cleared, what="the release")
    assert machine.worker.journal() == []


@pytest.mark.parametrize(
    ("used", "afterwards"),
    [("9000", FREE), ("9000", f"{TAKEN} procs=1:9000"), ("-", TAKEN)],
    ids=["released", "others explain it", "never measured"],
)
def test_nothing_is_held_of_an_app_that_left_nothing_that_could_be_told(
    machine: Machine, used: str, afterwards: str
) -> None:
    lease = machine.ran(used=used, afterwards=afterwards)

    began = time.monotonic()
    eventually(lambda: lease.cleared, what="the release")
    assert "gpu memory not released" not in machine.worker.log(), f"held for {time.monotonic() - began:.1f} s"


def test_a_worker_that_is_shut_down_does_not_wait_for_the_memory(machine: Machine, plane: ControlPlane) -> None:
    lease = machine.ran(afterwards=TAKEN)
    eventually(lambda: machine.reason() is not None, what="the reason")

    assert machine.worker.terminate() == 0
    assert [entry["facts"]["lease"] for entry in machine.worker.journal()] == [lease.id], "the next one goes on"
