"""A full disk: the worker makes room once, tries once more, and then says whose disk is full."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpu_worker import disk, garbage
from gpu_worker.config import load
from gpu_worker.containers import ContainerEngine
from gpu_worker.disk import GIB, MIB, DiskFloor, usual_floor
from gpu_worker.errors import ConfigError, JobFailed
from gpu_worker.executor import Prepared
from gpu_worker.housekeeping import Housekeeping
from gpu_worker.machine import Picture
from gpu_worker.preparing import prepare
from gpu_worker.protocol import Claim
from gpu_worker.source import SourceFetcher
from gpu_worker.source_limits import SourceLimits
from gpu_worker.workshop import Workshop
from tests.gpu_worker.control_plane import ControlPlane
from tests.gpu_worker.engines import small_engine
from tests.gpu_worker.images import BUSYBOX
from tests.gpu_worker.test_source import claim_of
from tests.gpu_worker.worker import WorkerProcess, eventually, make_repository

WORKER = "0f5d1f0e-6c1f-4b8e-9d55-000000000001"


def at_once(act: Callable[[], Prepared]) -> Prepared:
    return act()


def build(workshop: Workshop, claim: Claim) -> tuple[Prepared, str]:
    """Prepare a job as a runner does; what came out, and the build log."""
    said: list[bytes] = []
    prepared = prepare(
        workshop,
        claim,
        output=said.append,
        cancel=threading.Event(),
        started=lambda child: None,
        patiently=at_once,
    )
    return prepared, b"".join(said).decode(errors="replace")


def picture(root: Path, data: Path) -> Picture:
    """What the machine's own look would say of the disk now."""
    free = {
        name: os.statvfs(path).f_bavail * os.statvfs(path).f_frsize // MIB for name, path in (("r", root), ("d", data))
    }
    facts = SimpleNamespace(
        engine=SimpleNamespace(root=str(root)),
        disk={"docker_root_free_mib": free["r"], "data_free_mib": free["d"]},
    )
    return cast(Picture, facts)


def free_mib(path: Path) -> int:
    stats = os.statvfs(path)
    return stats.f_bavail * stats.f_frsize // MIB


# --- the floor -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("total", "floor"),
    [(16 * GIB, 1 * GIB), (100 * GIB, 5 * GIB), (2000 * GIB, 10 * GIB), (None, 10 * GIB)],
    ids=["small", "middle", "large", "unknown"],
)
def test_without_a_setting_the_floor_suits_the_disk(total: int | None, floor: int) -> None:
    assert usual_floor(total) == floor


def test_the_shortage_names_the_place_and_both_sizes() -> None:
    floor = DiskFloor(2048)
    root, data = Path("/var/lib/docker"), Path("/data")

    assert floor.shortage({data: 2048, root: None}) is None
    assert floor.shortage({data: 4096, root: 2047}) == (
        "Only 2.0 GiB of disk are free at /var/lib/docker, below the floor of 2.0 GiB (DISK_FLOOR_MIB)."
    )


def test_below_the_floor_no_job_is_taken_and_everybody_who_may_know_reads_why(
    plane: ControlPlane, make_worker: Callable[..., WorkerProcess]
) -> None:
    worker = make_worker(DISK_FLOOR_MIB=str(1024**3)).start()
    revision = make_repository(plane.git_root, "hello", {"app.py": "1"})
    job = plane.queue_job("hello", revision, app_file="app.py")

    beat = eventually(lambda: next((one for one in reversed(plane.beats) if one.get("paused_reason")), None))

    assert not beat["accepting"]
    assert beat["paused_reason"].startswith("Only ")
    assert beat["paused_reason"].endswith(f"below the floor of {1024**2:.1f} GiB (DISK_FLOOR_MIB).")
    beats = len(plane.beats)
    eventually(lambda: len(plane.beats) > beats + 3, what="more heartbeats")
    assert plane.state(job) == "queued"
    assert worker.terminate() == 0


# --- a source that fills the disk ------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place)], check=False).returncode != 0:
        pytest.skip("no right to mount a small disk here")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_fetch_that_fills_the_disk_is_tried_once_more_after_a_clean_up(plane: ControlPlane, small_disk: Path) -> None:
    claim = claim_of(plane, "hello", make_repository(plane.git_root, "hello", {"noise": os.urandom(5 * MIB)}))
    cleaned: list[bool] = []

    def make_room() -> int:
        cleaned.append((small_disk / "work").exists() and list((small_disk / "work").iterdir()) == [])
        return 2

    workshop = SimpleNamespace(
        work_dir=small_disk / "work",
        sources=SourceFetcher(),
        executor=SimpleNamespace(at_hand=lambda claim: None),
        worker_name="gpu1",
        make_room=make_room,
    )
    with pytest.raises(JobFailed) as failure:
        build(cast(Workshop, workshop), claim)

    assert (failure.value.reason, failure.value.detail) == (
        "disk_full",
        "The disk of gpu1 is full, also after a clean-up. There was no space left while git ran fetch.",
    )
    assert cleaned == [True]  # once, and nothing of the first try was left in its way
    assert list((small_disk / "work").iterdir()) == []


# --- a build that fills the disk -------------------------------------------------------------------------------------


@pytest.mark.docker
def test_a_build_that_fills_the_disk_ends_well_if_old_images_made_room(
    plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "MOMENT_SECONDS", 0.0)
    monkeypatch.setattr(disk, "RESERVE", 0)
    with small_engine(mib=120) as own:
        address, root = own.host, own.root
        monkeypatch.setenv("DOCKER_HOST", address)  # for the builds, by docker's own command line
        engine = ContainerEngine(WORKER, base_url=address)
        keeping = Housekeeping(DiskFloor(60), tmp_path, engine.images, in_hand=set)
        workshop: Any = SimpleNamespace(
            work_dir=tmp_path / "work",
            sources=SourceFetcher(),
            executor=engine,
            worker_name="gpu1",
            make_room=lambda: len(keeping.empty()),
        )

        def commit(mib: int) -> Claim:
            step = f'RUN ["/bin/busybox", "dd", "if=/dev/urandom", "of=/big", "bs=1048576", "count={mib}"]'
            files: dict[str, str | bytes] = {
                "Dockerfile": f"FROM scratch\nCOPY busybox /bin/busybox\n{step}\n",
                "busybox": BUSYBOX.read_bytes(),
            }
            return claim_of(plane, "hello", make_repository(plane.git_root, "hello", files))

        # Given an image that fills half of the disk
        build(workshop, commit(70))
        assert keeping.reason(picture(root, tmp_path)) is not None

        # When the next one does not fit beside it, then the first makes room
        second, log = build(workshop, commit(71))
        assert "The disk is full. Old images removed: 1. Trying once more." in log
        assert [image.id for image in engine.images.all()] == [second.image_id]

        # And what does not fit at all fails with the name of the worker; the last good image is still there
        engine.images.note_good(SimpleNamespace(image_id=second.image_id))  # type: ignore[arg-type]
        with pytest.raises(JobFailed) as failure:
            build(workshop, commit(200))
        assert (failure.value.reason, failure.value.detail) == (
            "disk_full",
            "The disk of gpu1 is full, also after a clean-up. There was no space left for the image.",
        )
        assert [image.id for image in engine.images.all()] == [second.image_id]

        # And below the floor the worker tidies up by itself, as far as it may
        assert not keeping.tidy(picture(root, tmp_path))
        [good] = [name for image in engine.images.all() for name in image.names if f":last-good-{WORKER[:8]}" in name]
        subprocess.run(["docker", "rmi", good], check=True, capture_output=True)
        assert keeping.tidy(picture(root, tmp_path))
        assert keeping.reason(picture(root, tmp_path)) is None


# --- the settings ----------------------------------------------------------------------------------------------------

URL = {"OPENFACE_URL": "http://openface.lan:8090"}


def test_limits_and_floor_are_settings_with_defaults_that_suit_most() -> None:
    usual = load(URL)
    given = load({**URL, "DISK_FLOOR_MIB": "0", "MAX_SOURCE_MIB": "7", "MAX_SOURCE_FILES": "8", "MAX_LFS_MIB": "0"})

    assert (usual.disk_floor_mib, usual.source_limits) == (None, SourceLimits(4096, 100_000, 51_200))
    assert (given.disk_floor_mib, given.source_limits) == (0, SourceLimits(7, 8, 0))


@pytest.mark.parametrize("name", ["DISK_FLOOR_MIB", "MAX_SOURCE_MIB", "MAX_SOURCE_FILES", "MAX_LFS_MIB"])
def test_a_limit_that_is_no_number_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{name} is '5 GiB'; it is a whole number from \d to \d+\.$"):
        load({**URL, name: "5 GiB"})
