"""Whose process is it: by the container it runs in, or by the mark it was started with; and who was given a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu_worker import gpu_owners, process_identity
from gpu_worker.executor import Found
from gpu_worker.gpu_owners import GpuOwners, containers_of
from gpu_worker.journal import JobFacts
from tests.gpu_worker.raw_apps import LEASE

CONTAINER = "4f" * 32
OTHER = "a1" * 32


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(gpu_owners, "PROC", tmp_path)
    monkeypatch.setattr(process_identity, "PROC", tmp_path)
    return tmp_path


def process(proc: Path, pid: int, cgroup: str, environ: bytes = b"") -> int:
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "cgroup").write_text(cgroup)
    (proc / str(pid) / "environ").write_bytes(environ)
    return pid


def app(reference: str = CONTAINER[:12], gpus: tuple[str, ...] = ("GPU-1",)) -> Found:
    facts = JobFacts(
        job="job", lease=LEASE, attempt=1, kind="gpu", mode="service", owner="alice", repo="lab", repository_id="r",
        revision="0" * 40, port=7860, gpus=gpus,
    )  # fmt: skip
    return Found(facts, reference, "running")


@pytest.mark.parametrize(
    "cgroup",
    [
        f"0::/system.slice/docker-{CONTAINER}.scope\n",
        f"0::/../{CONTAINER}\n",
        f"12:devices:/docker/{CONTAINER}\n9:name=systemd:/docker/{CONTAINER}\n0::/\n",
        f"0::/docker/{OTHER}/docker/{CONTAINER}\n",
    ],
    ids=["v2 systemd", "v2 seen from a container", "v1", "an engine in a container"],
)
def test_a_process_in_a_container_of_ours_is_its_leases(proc: Path, cgroup: str) -> None:
    pid = process(proc, 500, cgroup)

    assert GpuOwners([app()]).lease_of(pid) == LEASE


def test_a_process_in_another_container_is_foreign_whatever_it_says(proc: Path) -> None:
    pid = process(proc, 500, f"0::/docker/{OTHER}\n", f"OPENFACE_LEASE={LEASE}\0".encode())

    assert GpuOwners([app()]).lease_of(pid) is None


def test_a_process_without_a_container_is_ours_by_its_mark(proc: Path) -> None:
    ours = process(proc, 500, "0::/user.slice\n", f"A=b\0OPENFACE_LEASE={LEASE}\0".encode())
    theirs = process(proc, 501, "0::/user.slice\n", b"A=b\0")

    assert (GpuOwners().lease_of(ours), GpuOwners().lease_of(theirs)) == (LEASE, None)


def test_an_app_beside_a_worker_in_a_container_is_ours_by_its_mark(proc: Path) -> None:
    (proc / "self").mkdir()
    (proc / "self" / "cgroup").write_text(f"0::/docker/{OTHER}\n")
    pid = process(proc, 500, f"0::/docker/{OTHER}\n", f"OPENFACE_LEASE={LEASE}\0".encode())

    assert GpuOwners().lease_of(pid) == LEASE


def test_a_process_that_is_gone_is_nobodys(proc: Path) -> None:
    assert (containers_of(500), GpuOwners([app()]).lease_of(500)) == ([], None)


def test_a_gpu_is_given_to_the_leases_that_name_it() -> None:
    owners = GpuOwners([app(gpus=("GPU-1", "MIG-2"))])

    assert (owners.leases_on("MIG-2"), owners.leases_on("GPU-3")) == ([LEASE], [])
