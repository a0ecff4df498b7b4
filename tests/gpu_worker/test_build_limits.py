"""Builds that take what they can get: ended, told in a sentence, and nothing of others is bounded for longer."""

from __future__ import annotations

import os
import subprocess
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpu_worker import build_groups
from gpu_worker.build_groups import BuildGroup, BuildLimits, ControlGroup, choose
from gpu_worker.build_settings import BuildSettings, load
from gpu_worker.build_watch import Bounds, BuildWatch
from gpu_worker.containers import ContainerEngine
from gpu_worker.errors import ConfigError, JobFailed
from tests.gpu_worker.builds import claim, write
from tests.gpu_worker.engines import OwnEngine, skip_unless_possible
from tests.gpu_worker.images import BUSYBOX

OLD = {"ServerVersion": "20.10.24+dfsg1", "CgroupDriver": "cgroupfs", "MemTotal": 16 * 1024**3}
NEW = {**OLD, "ServerVersion": "26.1.5"}
GIB = 1024


# --- which way -------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["one hierarchy", "one per controller"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What /sys/fs/cgroup looks like, in either version; plain files, so that every write is seen."""
    monkeypatch.setattr(build_groups, "in_container", lambda: False)
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    if request.param == "one hierarchy":
        (tmp_path / "cgroup.controllers").write_text("cpu memory pids")
        (tmp_path / "cgroup.subtree_control").write_text("")
    else:
        for controller in ("memory", "pids", "cpu"):
            (tmp_path / controller).mkdir()
    engines = ControlGroup("docker/buildkit", tmp_path)
    engines.make()
    engines.unbound()
    return tmp_path


def bounded_by_hand(root: Path, path: str, *, memory_mib: int, pids: int) -> ControlGroup:
    group = ControlGroup(path, root)
    group.make()
    group.bound(BuildLimits(memory_mib, pids))
    return group


def test_a_newer_docker_is_told_a_group_of_our_own_with_half_of_the_memory(root: Path) -> None:
    chosen = choose(NEW, BuildSettings(), buildx=True, root=root)
    assert (chosen.parent, chosen.shared, chosen.missing) == ("/openface-builds", False, None)
    assert not list(root.glob("**/openface-builds")), "to look changes nothing"

    with Bounds().during(chosen):
        assert ControlGroup("openface-builds", root).limits() == BuildLimits(8 * GIB, 4096)
        assert [file.parent.name for file in root.glob("**/cpu.[sw]*")] == ["openface-builds"], (
            "it lets others go first"
        )


def test_the_slice_that_the_owner_has_made_goes_before(root: Path) -> None:
    bounded_by_hand(root, "openface-builds.slice", memory_mib=700, pids=70)

    chosen = choose(NEW, BuildSettings(memory_mib=99), buildx=True, root=root)

    assert (chosen.parent, chosen.in_force()) == ("openface-builds.slice", BuildLimits(700, 70))
    assert not list(root.glob("**/openface-builds"))


def test_an_older_docker_is_bounded_while_builds_of_ours_run_and_not_longer(root: Path) -> None:
    chosen = choose(OLD, BuildSettings(memory_mib=512, pids=100), buildx=False, root=root)
    engines, bounds = ControlGroup("docker/buildkit", root), Bounds()
    assert (chosen.parent, chosen.shared, engines.limits()) == (None, True, None)

    with bounds.during(chosen):
        with bounds.during(chosen):
            assert engines.limits() == BuildLimits(512, 100)
        assert engines.limits() == BuildLimits(512, 100)
        assert not list(root.glob("**/cpu.[sw]*")), "among containers that compute it would never end"
        engines.unbound()  # the end of another worker's build
        BuildWatch(chosen, bounds, say=pytest.fail).look()
        assert engines.limits() == BuildLimits(512, 100)

    assert engines.limits() is None


def test_what_somebody_else_has_bounded_stays_as_it_is(root: Path) -> None:
    chosen = choose(OLD, BuildSettings(memory_mib=512), buildx=False, root=root)
    theirs = bounded_by_hand(root, "docker/buildkit", memory_mib=4096, pids=900)

    with Bounds().during(chosen):
        assert theirs.limits() == BuildLimits(4096, 900)

    assert theirs.limits() == BuildLimits(4096, 900)


def test_what_a_killed_worker_has_left_in_force_is_lifted(root: Path) -> None:
    left = bounded_by_hand(root, "docker/buildkit", memory_mib=512, pids=100)

    Bounds().lift(choose(OLD, BuildSettings(memory_mib=512, pids=100), buildx=False, root=root))

    assert left.limits() is None


@pytest.mark.parametrize(
    ("info", "buildx", "why"),
    [
        ({**OLD, "CgroupDriver": "systemd"}, False, "Docker is older than 23, and systemd manages its control groups"),
        ({**NEW, "CgroupDriver": "systemd"}, False, "the docker command line has no buildx, and systemd manages"),
    ],
)
def test_where_builds_cannot_be_bounded_it_is_said_why(
    root: Path, info: dict[str, object], buildx: bool, why: str
) -> None:
    chosen = choose(info, BuildSettings(), buildx=buildx, root=root)

    assert chosen.missing is not None
    assert chosen.missing.startswith(why)
    assert (chosen.parent, chosen.in_force()) == (None, None)


def test_from_a_container_and_for_another_machine_nothing_is_bounded(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://10.0.0.9:2375")
    assert "another machine" in str(choose(NEW, BuildSettings(), buildx=True, root=root).missing)
    monkeypatch.setattr(build_groups, "in_container", lambda: True)
    assert "runs in a container" in str(choose(NEW, BuildSettings(), buildx=True, root=root).missing)


# --- real builds -----------------------------------------------------------------------------------------------------


@dataclass
class Bench:
    """A real engine whose builds have a control group that no other engine of this machine uses."""

    engine: ContainerEngine
    group: ControlGroup
    directory: Path
    log: str = ""

    def build(self, command: str) -> str:
        files: dict[str, str | bytes] = {
            "Dockerfile": 'FROM scratch\nCOPY busybox /bin/busybox\nRUN ["/bin/busybox", "--install", "-s", '
            f'"/bin"]\nRUN {command}\n',
            "busybox": BUSYBOX.read_bytes(),
        }
        prepared = self.engine.prepare(
            claim(),
            write(self.directory / uuid.uuid4().hex / "source", files),
            output=self._hear,
            cancel=threading.Event(),
            started=lambda child: None,
        )
        return str(prepared.image_id)

    def _hear(self, data: bytes) -> None:
        self.log += data.decode(errors="replace")


@pytest.fixture(scope="module")
def own_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """An engine of its own (address, parent group): these limits would be in force for builds of other tests too."""
    skip_unless_possible()
    parent = f"openface-test-{os.getpid()}"
    with OwnEngine(tmp_path_factory.mktemp("e"), cgroup_parent=f"/{parent}") as engine:
        yield engine.host, parent
    for group in sorted(Path("/sys/fs/cgroup").glob(f"**/{parent}/**/"), reverse=True):
        group.rmdir()


@pytest.fixture
def bench(own_engine: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    host, parent = own_engine
    monkeypatch.setenv("DOCKER_HOST", host)
    monkeypatch.setattr(build_groups, "ENGINES_OWN", f"{parent}/buildkit")
    settings = BuildSettings(memory_mib=96, pids=40)
    engine = ContainerEngine(str(uuid.uuid4()), base_url=host, build=settings)
    group = engine.build_group(False)
    if group.group is None:
        pytest.skip(f"builds cannot be bounded here: {group.missing}")
    yield Bench(engine, group.group, tmp_path)


@pytest.mark.docker
def test_a_build_that_eats_memory_is_ended_and_told(bench: Bench) -> None:
    with pytest.raises(JobFailed) as failure:
        bench.build("dd if=/dev/zero of=/dev/null bs=500M count=2")

    assert failure.value.reason == "build_out_of_memory"
    assert "at the limit of 96 MiB" in failure.value.detail
    assert bench.group.limits() is None, "builds of others are free again"


@pytest.mark.docker
def test_a_fork_bomb_in_a_build_is_ended_and_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_worker.build_watch.CROWDED_SECONDS", 1.0)
    with pytest.raises(JobFailed) as failure:
        # one that gives up at once, and in its way one that never does
        bench.build("(while :; do (sleep 99 & sleep 99 & sleep 99) 2>/dev/null & sleep 0.02; done) & sleep 99")

    assert failure.value.reason == "build_too_many_processes"
    assert bench.group.processes() < 40


@pytest.mark.docker
def test_a_build_that_keeps_within_its_limits_does_not_notice_them(bench: Bench) -> None:
    assert bench.build("dd if=/dev/zero of=/file bs=1M count=150").startswith("sha256:")
    assert bench.group.limits() is None
    subprocess.run(["docker", "version"], check=True, capture_output=True)


# --- what is said ----------------------------------------------------------------------------------------------------


def test_a_failed_build_is_only_out_of_memory_where_its_group_was(root: Path) -> None:
    group = bounded_by_hand(root, "openface-builds", memory_mib=64, pids=50)
    watch = BuildWatch(BuildGroup(parent="/openface-builds", group=group), Bounds(), say=pytest.fail)

    assert watch.verdict(b'ERROR: process "/bin/sh -c x" did not complete successfully: exit code: 137') is None


URL = {"OPENFACE_URL": "http://openface.lan:8090"}


def test_the_limits_of_builds_are_settings() -> None:
    given = load({**URL, "BUILD_MEMORY_MIB": "2048", "BUILD_PIDS": "300"}, base_image="")

    assert (given.memory_mib, given.pids) == (2048, 300)
    with pytest.raises(ConfigError, match=r"^BUILD_PIDS is 'many'; it is a whole number from 16 to \d+\.$"):
        load({**URL, "BUILD_PIDS": "many"}, base_image="")
