"""A job's whole life in a container: built with BuildKit, hardened, served, stopped, removed with every trace."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.gpu_worker.conftest import ask
from tests.gpu_worker.control_plane import ControlPlane, Lease
from tests.gpu_worker.engine_relay import EngineRelay
from tests.gpu_worker.images import DOCKERFILE, container_files
from tests.gpu_worker.nvml import build_nvml_stub
from tests.gpu_worker.worker import WorkerProcess, eventually, make_repository

pytestmark = pytest.mark.docker
Make = Callable[..., WorkerProcess]


@pytest.fixture
def engine() -> Any:
    client = docker.from_env()
    yield client
    client.close()


def containers_of(engine: Any, lease: str) -> list[Any]:
    return list(engine.containers.list(all=True, filters={"label": f"openface.lease={lease}"}))


def running(plane: ControlPlane, repo: str, revision: str, **changes: Any) -> Lease:
    job = plane.queue_job(repo, revision, **changes)
    eventually(lambda: plane.state(job) in ("running", "failed"), what="running")
    lease = plane.lease_of(job)
    assert lease is not None
    assert lease.state == "running", (lease.events, lease.logs)
    return lease


def test_a_dockerfile_is_built_and_served(plane: ControlPlane, make_worker: Make, engine: Any) -> None:
    revision = make_repository(plane.git_root, "box", container_files())
    worker = make_worker(executor="docker").start()

    lease = running(plane, "box", revision)

    assert ask(worker, lease.id, "/index.html") == (200, b"hello from a container")
    assert "httpd" in lease.logs["build"] or "busybox" in lease.logs["build"]
    eventually(lambda: "serving\n" in lease.logs["run"], what="the app's log")
    image = engine.images.get(lease.events[-1]["image_id"])
    assert image.labels["openface.revision"] == revision


def test_a_container_is_hardened_and_sees_no_gpu(plane: ControlPlane, make_worker: Make, engine: Any) -> None:
    revision = make_repository(plane.git_root, "box", container_files())
    make_worker(executor="docker").start()

    limits = {"memory_mib": 64, "cpus": 0.5, "pids": 50}
    environment = {
        "NVIDIA_VISIBLE_DEVICES": "all",
        "CUDA_VISIBLE_DEVICES": "0",
        "NVIDIA_DISABLE_REQUIRE": "1",
        "A": "b",
    }
    lease = running(plane, "box", revision, limits=limits, environment=environment)

    [container] = containers_of(engine, lease.id)
    host = container.attrs["HostConfig"]
    assert host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"] == ["no-new-privileges:true"]
    assert host["Init"] is True
    assert (host["Memory"], host["NanoCpus"], host["PidsLimit"]) == (64 * 1024 * 1024, 500_000_000, 50)
    assert host["RestartPolicy"]["Name"] in ("", "no")
    assert not host["Binds"] and not host["PortBindings"] and not host["Privileged"] and not host["DeviceRequests"]
    assert host["LogConfig"] == {"Type": "json-file", "Config": {"max-size": "10m", "max-file": "3"}}
    inside = dict(pair.split("=", 1) for pair in container.attrs["Config"]["Env"])
    assert (inside["NVIDIA_VISIBLE_DEVICES"], inside["CUDA_VISIBLE_DEVICES"], inside["CUDA_DEVICE_ORDER"]) == (
        "void", "-1", "PCI_BUS_ID")  # fmt: skip
    assert "NVIDIA_DISABLE_REQUIRE" not in inside
    assert inside["A"] == "b"
    labels = container.labels
    assert labels["openface.worker"] == plane.worker_id
    assert labels["openface.job"] == lease.claim["id"]
    assert labels["openface.repository"] == "r-box"
    assert list(container.attrs["NetworkSettings"]["Networks"]) == [container.name]


def test_a_job_without_limits_gets_the_workers(plane: ControlPlane, make_worker: Make, engine: Any) -> None:
    revision = make_repository(plane.git_root, "box", container_files())
    make_worker(executor="docker", JOB_MEMORY_MIB="96", JOB_PIDS="60").start()
    lease = running(plane, "box", revision, limits={})

    [container] = containers_of(engine, lease.id)
    host = container.attrs["HostConfig"]
    assert (host["Memory"], host["MemorySwap"], host["PidsLimit"]) == (96 * 1024**2, 96 * 1024**2, 60)
    assert host["NanoCpus"] == engine.info()["NCPU"] * 10**9


def test_a_stop_leaves_no_container_and_no_network(plane: ControlPlane, make_worker: Make, engine: Any) -> None:
    revision = make_repository(plane.git_root, "box", container_files())
    make_worker(executor="docker").start()
    lease = running(plane, "box", revision)

    plane.stop_job(lease.claim["id"])

    eventually(lambda: lease.cleared, what="clearing")
    assert lease.kinds()[-1] == "stopped"
    assert containers_of(engine, lease.id) == []
    assert engine.networks.list(filters={"label": f"openface.lease={lease.id}"}) == []


def test_the_same_commit_starts_without_a_build(plane: ControlPlane, make_worker: Make) -> None:
    revision = make_repository(plane.git_root, "again", container_files())
    make_worker(executor="docker").start()
    first = running(plane, "again", revision)
    plane.stop_job(first.claim["id"])
    eventually(lambda: first.cleared, what="clearing")

    second = running(plane, "again", revision)

    assert "nothing to build" in second.logs["build"]
    assert "Fetching" in first.logs["build"]
    assert "Fetching" not in second.logs["build"], "nobody needs its source"
    assert second.events[-1]["image_id"] == first.events[2]["image_id"]


def test_a_container_removed_by_hand_is_noticed(plane: ControlPlane, make_worker: Make, engine: Any) -> None:
    revision = make_repository(plane.git_root, "box", container_files())
    make_worker(executor="docker").start()
    lease = running(plane, "box", revision)

    containers_of(engine, lease.id)[0].remove(force=True)

    eventually(lambda: lease.state == "failed", what="the failure")
    # the engine kills before it removes: whichever of the two the worker saw
    assert lease.events[-1].get("reason") == "container_lost" or lease.events[-1].get("code") == 137
    eventually(lambda: lease.cleared, what="clearing")


def test_an_app_that_dies_is_reported_with_its_code_and_last_words(plane: ControlPlane, make_worker: Make) -> None:
    dies = DOCKERFILE.replace("exec busybox httpd -f", "busybox httpd").replace(
        '/www"]', '/www; sleep 2; echo dying; exit 7"]'
    )
    revision = make_repository(plane.git_root, "dies", container_files(Dockerfile=dies))
    make_worker(executor="docker").start()
    lease = running(plane, "dies", revision)

    eventually(lambda: lease.state == "failed", what="the end")

    assert (lease.events[-1]["kind"], lease.events[-1]["code"], lease.events[-1]["oom_killed"]) == ("exited", 7, False)
    assert lease.events[-1]["detail"] == "The app ended with code 7. Its last line: dying"
    assert lease.logs["run"].endswith("dying\n")
    assert lease.events[-1]["log_ends"]["run"] == len(lease.logs["run"].encode())


def test_an_app_that_ends_before_it_answers_says_its_last_line_without_secrets(
    plane: ControlPlane, make_worker: Make
) -> None:
    complains = DOCKERFILE.replace("echo serving; exec busybox httpd", "echo no model for $KEY; exit 3; busybox httpd")
    revision = make_repository(plane.git_root, "early", container_files(Dockerfile=complains))
    make_worker(executor="docker").start()

    job = plane.queue_job("early", revision, secrets={"KEY": "very-secret-value"})
    eventually(lambda: plane.state(job) == "failed", what="the failure")

    lease = plane.lease_of(job)
    assert lease is not None
    assert lease.events[-1]["reason"] == "exited_before_ready"
    assert lease.events[-1]["detail"] == "The app ended with code 3. Its last line: no model for ***"


def test_a_failing_build_says_so_and_shows_its_output(plane: ControlPlane, make_worker: Make) -> None:
    broken = DOCKERFILE.replace("EXPOSE 7860", 'RUN ["sh", "-c", "echo nearly there; exit 3"]')
    revision = make_repository(plane.git_root, "broken", container_files(Dockerfile=broken))
    make_worker(executor="docker").start()

    job = plane.queue_job("broken", revision)
    eventually(lambda: plane.state(job) == "failed", what="the failure")

    lease = plane.lease_of(job)
    assert lease is not None
    assert lease.events[-1]["reason"] == "build_failed"
    assert "nearly there" in lease.logs["build"]


def test_a_build_is_cut_by_a_stop(plane: ControlPlane, make_worker: Make) -> None:
    slow = DOCKERFILE.replace("EXPOSE 7860", 'RUN ["sh", "-c", "echo waiting; sleep 300"]')
    revision = make_repository(plane.git_root, "slow", container_files(Dockerfile=slow))
    make_worker(executor="docker").start()
    job = plane.queue_job("slow", revision)
    lease = eventually(lambda: plane.lease_of(job), what="the claim")
    eventually(lambda: "waiting" in lease.logs["build"], what="the slow step")

    plane.stop_job(job)

    eventually(lambda: lease.cleared, what="clearing")
    assert lease.kinds() == ["building", "stopped"]


def test_an_app_that_listens_on_loopback_only_gets_that_diagnosis(plane: ControlPlane, make_worker: Make) -> None:
    hidden = DOCKERFILE.replace("0.0.0.0:7860", "127.0.0.1:5000")
    revision = make_repository(plane.git_root, "hidden", container_files(Dockerfile=hidden))
    make_worker(executor="docker").start()

    job = plane.queue_job("hidden", revision, startup_timeout_s=2)
    eventually(lambda: plane.state(job) == "failed", what="the failure")

    lease = plane.lease_of(job)
    assert lease is not None
    assert lease.events[-1]["reason"] == "startup_timeout"
    assert "it listens on 127.0.0.1:5000, expected 0.0.0.0:7860" in lease.events[-1]["detail"]


def test_a_repository_that_says_nothing_of_how_to_run_it_fails_with_a_sentence(
    plane: ControlPlane, make_worker: Make
) -> None:
    revision = make_repository(plane.git_root, "bare", {"app.py": "print(1)"})
    make_worker(executor="docker").start()

    job = plane.queue_job("bare", revision)
    eventually(lambda: plane.state(job) == "failed", what="the failure")

    lease = plane.lease_of(job)
    assert lease is not None
    assert lease.events[-1]["reason"] == "no_dockerfile"
    assert lease.events[-1]["detail"] == "The repository has neither a Dockerfile nor an app_file."


def test_an_app_killed_for_memory_is_told_so(plane: ControlPlane, make_worker: Make) -> None:
    hungry = DOCKERFILE.replace("exec busybox httpd -f", "busybox httpd").replace(
        '/www"]', '/www; sleep 2; exec busybox dd if=/dev/zero of=/dev/null bs=200M"]'
    )
    revision = make_repository(plane.git_root, "hungry", container_files(Dockerfile=hungry))
    make_worker(executor="docker").start()
    lease = running(plane, "hungry", revision, limits={"memory_mib": 32})

    eventually(lambda: lease.state == "failed", what="the end")

    assert (lease.events[-1]["code"], lease.events[-1]["oom_killed"]) == (137, True)
    assert "out of memory" in lease.logs["system"]


def test_a_batch_job_that_ends_well_is_complete(plane: ControlPlane, make_worker: Make) -> None:
    batch = DOCKERFILE.replace("echo serving; exec busybox httpd -f -v -p 0.0.0.0:7860 -h /www", "echo the result")
    revision = make_repository(plane.git_root, "batch", container_files(Dockerfile=batch))
    make_worker(executor="docker").start()

    job = plane.queue_job("batch", revision, mode="batch")
    eventually(lambda: plane.state(job) == "completed", what="the end")

    lease = plane.lease_of(job)
    assert lease is not None
    assert lease.kinds() == ["building", "starting", "running", "exited"]
    assert lease.logs["run"] == "the result\n"


def test_a_paused_container_is_not_healthy(plane: ControlPlane, make_worker: Make, engine: Any) -> None:
    revision = make_repository(plane.git_root, "box", container_files())
    make_worker(executor="docker").start()
    lease = running(plane, "box", revision)
    [container] = containers_of(engine, lease.id)

    container.pause()
    eventually(lambda: lease.kinds()[-1] == "health", what="the report")
    assert (lease.events[-1]["healthy"], lease.events[-1]["detail"]) == (False, "paused")
    container.unpause()

    eventually(lambda: lease.events[-1].get("healthy") is True, what="the recovery")


def test_a_build_secret_stays_out_of_image_and_log(plane: ControlPlane, make_worker: Make, engine: Any) -> None:
    uses = DOCKERFILE.replace(
        "EXPOSE 7860",
        f"ENV UNIQUE={uuid.uuid4()}\n"  # or the engine's cache answers for an earlier run of this test
        'RUN --mount=type=secret,id=KEY ["sh", "-c", "cat /run/secrets/KEY; wc -c < /run/secrets/KEY > /www/size"]',
    )
    revision = make_repository(plane.git_root, "secret", container_files(Dockerfile=uses))
    worker = make_worker(executor="docker").start()

    lease = running(plane, "secret", revision, secrets={"KEY": "very-secret-value"})

    assert ask(worker, lease.id, "/size") == (200, b"17\n")
    assert "very-secret-value" not in lease.logs["build"]
    assert "***" in lease.logs["build"]
    image = engine.images.get(lease.events[-1]["image_id"])
    assert "very-secret-value" not in str(image.history()) + str(image.attrs)
    assert "very-secret-value" not in worker.log() + str(worker.journal())


def test_an_engine_without_gpu_support_is_explained(plane: ControlPlane, make_worker: Make, tmp_path: Path) -> None:
    gpus = tmp_path / "nvml.txt"
    gpus.write_text("uuid=GPU-aaaa name=NVIDIA_RTX total=24564 free=24000\n")
    revision = make_repository(plane.git_root, "box", container_files())
    stub = {"LD_LIBRARY_PATH": str(build_nvml_stub(tmp_path)), "STUB_NVML_FILE": str(gpus)}
    make_worker(executor="docker", **stub).start()
    assert [gpu["uuid"] for gpu in plane.registers[-1]["gpus"]] == ["GPU-aaaa"]

    job = plane.queue_job("box", revision, kind="gpu", gpus=["GPU-aaaa"])
    eventually(lambda: plane.state(job) == "failed", what="the failure")

    lease = plane.lease_of(job)
    assert lease is not None
    assert lease.events[-1]["reason"] == "start_failed"
    assert "NVIDIA Container Toolkit" in lease.events[-1]["detail"]


def test_a_simulated_gpu_reaches_the_app_by_its_environment(
    plane: ControlPlane, make_worker: Make, engine: Any, tmp_path: Path
) -> None:
    file = tmp_path / "gpus.json"
    file.write_text('{"gpus": [{"uuid": "GPU-51", "model": "RTX 3060"}, {"uuid": "GPU-52", "model": "RTX 4090"}]}')
    revision = make_repository(plane.git_root, "box", container_files())
    make_worker(executor="docker", OPENFACE_SIMULATE_GPUS=str(file)).start()

    lease = running(plane, "box", revision, kind="gpu", gpus=["GPU-52"])

    [container] = containers_of(engine, lease.id)
    inside = dict(pair.split("=", 1) for pair in container.attrs["Config"]["Env"])
    assert inside["NVIDIA_VISIBLE_DEVICES"] == inside["CUDA_VISIBLE_DEVICES"] == "GPU-52"
    assert [gpu["model"] for gpu in json.loads(inside["OPENFACE_SIMULATED_GPUS"])] == ["RTX 4090"]
    assert not container.attrs["HostConfig"]["DeviceRequests"]
    assert lease.events[-1]["gpus"] == ["GPU-52"]


def test_a_gpu_that_is_gone_gives_the_job_back(plane: ControlPlane, make_worker: Make, tmp_path: Path) -> None:
    file = tmp_path / "gpus.json"
    file.write_text('{"gpus": [{"uuid": "GPU-51"}]}')
    revision = make_repository(plane.git_root, "box", container_files())
    make_worker(executor="docker", OPENFACE_SIMULATE_GPUS=str(file)).start()

    job = plane.queue_job("box", revision, kind="gpu", gpus=["GPU-gone"])
    lease = eventually(lambda: plane.lease_of(job), what="the claim")

    eventually(lambda: "declined" in lease.kinds(), what="the refusal")
    assert lease.events[-1]["reason"] == "gpu_gone"


def test_after_a_reboot_the_same_container_is_started_under_the_same_lease(
    plane: ControlPlane, make_worker: Make, engine: Any
) -> None:
    revision = make_repository(plane.git_root, "box", container_files())
    worker = make_worker(executor="docker").start()
    lease = running(plane, "box", revision)
    [container] = containers_of(engine, lease.id)
    worker.kill()
    container.kill()
    worker.rewrite_journal(boot_id="the boot before")

    worker.start()

    assert [hold["state"] for hold in plane.registers[-1]["holds"]] == ["exited"], "it did not go on running"
    eventually(lambda: lease.kinds()[3:] == ["starting", "running"], what="running again")
    assert lease.events[-2]["reason"] == "host_rebooted"
    assert [one.id for one in containers_of(engine, lease.id)] == [container.id]
    assert ask(worker, lease.id, "/index.html") == (200, b"hello from a container")


def test_a_container_without_its_journal_is_adopted_from_its_labels(
    plane: ControlPlane, make_worker: Make, engine: Any
) -> None:
    revision = make_repository(plane.git_root, "box", container_files())
    worker = make_worker(executor="docker").start()
    lease = running(plane, "box", revision)
    before = [one.id for one in containers_of(engine, lease.id)]
    worker.kill()
    for entry in (worker.data_dir / "jobs").glob("*.json"):
        entry.unlink()

    worker.start()

    eventually(lambda: lease.kinds().count("running") == 2, what="the report")
    assert [one.id for one in containers_of(engine, lease.id)] == before
    assert ask(worker, lease.id, "/index.html")[0] == 200
    plane.stop_job(lease.claim["id"])
    eventually(lambda: lease.cleared, what="clearing")


def test_what_is_not_ours_is_not_touched(plane: ControlPlane, make_worker: Make, engine: Any) -> None:
    revision = make_repository(plane.git_root, "box", container_files())
    worker = make_worker(executor="docker").start()
    lease = running(plane, "box", revision)
    # a person looks into our image by hand: the container inherits the image's labels, and is still theirs
    theirs = engine.containers.run(lease.events[-1]["image_id"], detach=True, network_mode="none")
    try:
        worker.kill()
        worker.start()
        plane.stop_job(lease.claim["id"])
        eventually(lambda: lease.cleared, what="clearing")

        theirs.reload()
        assert theirs.status == "running"
    finally:
        theirs.remove(force=True)


def test_a_silent_engine_is_told_as_not_known_and_costs_nothing(
    plane: ControlPlane, make_worker: Make, tmp_path: Path, engine: Any
) -> None:
    revision = make_repository(plane.git_root, "box", container_files())
    with EngineRelay(tmp_path / "engine.sock") as relay:
        worker = make_worker(executor="docker", DOCKER_HOST=f"unix://{relay.path}").start()
        lease = running(plane, "box", revision)

        relay.cut()
        eventually(lambda: plane.beats[-1]["holds"] is None, what="a heartbeat without a list")
        assert plane.beats[-1]["accepting"] is False
        assert ask(worker, lease.id, "/index.html")[0] == 200
        relay.mend()

        eventually(lambda: plane.beats[-1]["holds"], what="a heartbeat with a list")
        assert lease.kinds() == ["building", "starting", "running"]
        assert len(containers_of(engine, lease.id)) == 1


def test_a_revoked_worker_forgets_itself_only_when_nothing_of_it_is_left(
    plane: ControlPlane, make_worker: Make, tmp_path: Path, engine: Any
) -> None:
    revision = make_repository(plane.git_root, "box", container_files())
    with EngineRelay(tmp_path / "engine.sock") as relay:
        worker = make_worker(executor="docker", DOCKER_HOST=f"unix://{relay.path}").start()
        lease = running(plane, "box", revision)
        worker.kill()
        plane.revoked = True
        relay.cut()

        worker.spawn()
        eventually(lambda: "action=revoked" in worker.log(), what="the news")
        assert len(containers_of(engine, lease.id)) == 1
        assert (worker.data_dir / "credential.json").exists(), "without it nobody would know whose they are"
        relay.mend()

        assert worker.wait() == 78
        assert containers_of(engine, lease.id) == []
        assert not (worker.data_dir / "credential.json").exists()


def test_a_container_that_appears_without_the_worker_is_adopted_and_goes_the_way_of_its_lease(
    plane: ControlPlane, make_worker: Make, engine: Any
) -> None:
    revision = make_repository(plane.git_root, "box", container_files())
    make_worker(executor="docker").start()
    lease = running(plane, "box", revision)
    [ours] = containers_of(engine, lease.id)
    over = str(uuid.uuid4())
    labels = {name: text.replace(lease.id, over) for name, text in ours.labels.items()}

    # as a create whose answer was lost, or a restored snapshot of the engine, would leave it
    engine.containers.create(lease.events[-1]["image_id"], labels=labels, network_mode="none")

    eventually(lambda: over in str(plane.beats[-1]["holds"]), what="a heartbeat that lists it")
    plane.leases[over] = Lease({**lease.claim, "lease": over}, released=True)

    eventually(lambda: plane.leases[over].cleared, what="its removal")
    assert containers_of(engine, over) == []
    assert lease.kinds() == ["building", "starting", "running"]
    assert len(containers_of(engine, lease.id)) == 1
