"""The way of a worker through the API: register, heartbeat, claim, report, renew."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from jobs.lifecycle import request_stop
from jobs.models import Job, JobEvent, Lease, Requirement, Reservation
from jobs.states import JobState
from tests.factories import JobFactory, RequirementFactory, ago
from tests.protocol.test_server_messages import complaints
from tests.workers.conftest import GPU, WireWorker
from workers.models import Gpu, Worker
from workers.offers import offers_for

pytestmark = pytest.mark.django_db

Enroll = Any


@pytest.fixture
def cpu(enroll: Enroll) -> WireWorker:
    """A local worker for CPU jobs whose gateway answers."""
    worker: WireWorker = enroll("here", local=True, gateway_url="http://127.0.0.1:18787")
    reachable(worker)
    return worker


def reachable(worker: WireWorker) -> None:
    Worker.objects.filter(pk=worker.id).update(gateway_status=Worker.Gateway.OK)


def hold(claimed: Any, state: str = "running") -> dict[str, str]:
    return {"lease": claimed["lease"], "state": state}


class TestRegister:
    def test_each_start_begins_a_session(self, enroll: Enroll) -> None:
        worker = enroll(register=False)

        first, second = worker.register(), worker.register()

        assert (first["session"], second["session"]) == (1, 2)
        assert complaints("register.response", second) == []
        assert worker.row.last_seen_at is not None

    def test_the_machine_is_described(self, enroll: Enroll) -> None:
        worker = enroll(gpus=[GPU])

        row = worker.row
        assert (row.max_gpu_jobs, row.max_cpu_jobs, row.executor, row.version) == (2, 4, "docker", "0.1.0")
        gpu = Gpu.objects.get()
        assert (gpu.uuid, gpu.total_vram_mib, gpu.present, gpu.healthy) == (GPU["uuid"], 24564, True, True)

    def test_a_state_directory_of_another_worker_is_refused(self, enroll: Enroll) -> None:
        one, other = enroll("gpu1"), enroll("gpu2")
        stolen = WireWorker(one.id, other.credential)

        answer = stolen.post(
            "register",
            {
                "capabilities": {
                    "worker_id": one.id,
                    "worker_version": "1",
                    "executor": "docker",
                    "max_jobs": {"gpu": 0, "cpu": 1},
                },
                "gpus": [],
                "holds": [],
            },
        )

        assert (answer.status_code, answer.json()["code"]) == (403, "not_your_worker")

    def test_simulated_gpus_are_never_beside_real_ones(self, enroll: Enroll) -> None:
        worker = enroll(register=False)
        simulated = GPU | {"uuid": "GPU-simulated", "simulated": True}
        body = {
            "capabilities": {
                "worker_id": worker.id,
                "worker_version": "1",
                "executor": "docker",
                "max_jobs": {"gpu": 1, "cpu": 1},
            },
            "gpus": [GPU, simulated],
            "holds": [],
        }

        answer = worker.post("register", body)

        assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
        assert "gpus" in answer.json()["errors"]
        assert worker.row.session == 0

    def test_an_older_session_is_refused(self, enroll: Enroll) -> None:
        old = enroll()
        clone = WireWorker(old.id, old.credential)
        clone.register()

        answers = [
            old.heartbeat(),
            old.claim(),
            old.post(f"{old.id}/jobs/{old.id}/lease", {"session": old.session, "lease": old.id}),
        ]

        assert {answer.status_code for answer in answers} == {409}
        assert {answer.json()["code"] for answer in answers} == {"session_superseded"}
        assert clone.heartbeat().status_code == 200

    def test_a_superseded_session_does_not_keep_the_worker_alive(self, enroll: Enroll) -> None:
        old = enroll()
        WireWorker(old.id, old.credential).register()
        before = old.row.last_seen_at

        old.heartbeat()

        assert old.row.last_seen_at == before


class TestHeartbeat:
    def test_it_proves_life_and_answers_by_the_schema(self, enroll: Enroll) -> None:
        worker = enroll()
        Worker.objects.update(last_seen_at=None)

        answer = worker.heartbeat()

        assert answer.status_code == 200
        assert complaints("heartbeat.response", answer.json()) == []
        assert answer.json()["standing"] == "open"
        assert worker.row.last_seen_at is not None

    def test_an_overtaken_beat_changes_nothing_but_liveness(self, enroll: Enroll) -> None:
        worker = enroll(gpus=[GPU])
        worker.beat = 10
        worker.heartbeat()
        Worker.objects.update(last_seen_at=None)
        worker.beat = 4

        answer = worker.heartbeat(accepting=False, gpus=[])

        assert answer.status_code == 200
        row = worker.row
        assert (row.accepting, row.beat) == (True, 11)
        assert Gpu.objects.get().present
        assert row.last_seen_at is not None

    def test_a_repeated_beat_is_taken_again(self, enroll: Enroll) -> None:
        worker = enroll()
        first = worker.heartbeat(accepting=False, paused_reason="lunch")
        worker.beat -= 1

        second = worker.heartbeat(accepting=False, paused_reason="lunch")

        assert (second.status_code, second.json()) == (200, first.json())
        assert worker.row.paused_reason == "lunch"

    def test_a_gpu_that_vanishes_is_kept_as_not_present(self, enroll: Enroll) -> None:
        worker = enroll(gpus=[GPU])

        worker.heartbeat(gpus=[])

        gpu = Gpu.objects.get()
        assert (gpu.present, gpu.total_vram_mib, gpu.free_vram_mib) == (False, 24564, None)

        worker.heartbeat()
        assert Gpu.objects.get().present

    def test_a_gpus_size_is_the_largest_ever_reported(self, enroll: Enroll) -> None:
        worker = enroll(gpus=[GPU])

        worker.heartbeat(gpus=[GPU | {"total_vram_mib": 1024}])
        assert Gpu.objects.get().total_vram_mib == 24564

        worker.heartbeat(gpus=[{"uuid": GPU["uuid"], "healthy": False, "error": "GPU is lost"}])
        gpu = Gpu.objects.get()
        assert (gpu.total_vram_mib, gpu.healthy, gpu.error) == (24564, False, "GPU is lost")

    def test_the_same_gpu_twice_is_refused(self, enroll: Enroll) -> None:
        worker = enroll()

        answer = worker.heartbeat(gpus=[GPU, GPU])

        assert (answer.status_code, list(answer.json()["errors"])) == (422, ["gpus"])

    def test_an_unknown_lease_is_kept_on_hold_and_remembered(self, enroll: Enroll) -> None:
        worker = enroll()
        stray = "e91b5c37-48fa-4c16-a2de-70b8d3f95a12"

        answer = worker.heartbeat(holds=[{"lease": stray, "state": "running"}])

        assert [(each["lease"], each["want"]) for each in answer.json()["leases"]] == [(stray, "hold")]
        assert worker.row.foreign_leases == [stray]
        worker.heartbeat()
        assert worker.row.foreign_leases == []

    def test_heartbeats_cost_a_fixed_number_of_queries(
        self, enroll: Enroll, django_assert_max_num_queries: Any
    ) -> None:
        gpus = [GPU | {"uuid": f"GPU-{n}", "index": n} for n in range(8)]
        worker = enroll(gpus=gpus)

        with django_assert_max_num_queries(14):
            worker.heartbeat()


class TestClaim:
    def test_the_oldest_job_is_leased_and_described(self, cpu: WireWorker) -> None:
        spec = {
            "sdk": "docker",
            "app_file": "app.py",
            "sdk_version": "1.40.0",
            "python_version": "3.12",
            "app_port": 8000,
            "startup_timeout_s": 60,
            "environment": {"SPACE_ID": "o/s"},
        }
        job = JobFactory.create(owner="Alice", repo="hello", spec=spec)
        JobFactory.create()

        answer = cpu.claim()

        assert answer.status_code == 200
        body = answer.json()
        assert complaints("claim.response", body) == []
        assert body["id"] == str(job.pk)
        assert body["clone_url"] == "http://testserver:8091/git/Alice/hello.git"
        assert body["base_path"] == "/run/Alice/hello/"
        assert (body["port"], body["app_file"], body["sdk"]) == (8000, "app.py", "docker")
        assert (body["sdk_version"], body["python_version"]) == ("1.40.0", "3.12")
        assert body["environment"] == {"SPACE_ID": "o/s"}
        assert body["limits"]["stop_after_disconnect_s"] is None
        assert 80 < body["lease_expires_in_s"] <= 90
        assert Job.objects.get(pk=job.pk).state == JobState.LEASED

    def test_the_data_planes_address_can_be_configured(self, cpu: WireWorker, settings: Any) -> None:
        settings.OPENFACE_DATA_URL = "https://data.example.org"
        settings.OPENFACE_STOP_AFTER_DISCONNECT_SECONDS = 3600
        JobFactory.create(owner="o", repo="r", mode=Job.Mode.BATCH)

        body = cpu.claim().json()

        assert body["clone_url"] == "https://data.example.org/git/o/r.git"
        assert body["artifacts_url"] == f"https://data.example.org/artifacts/{body['id']}"
        assert body["limits"]["stop_after_disconnect_s"] == 3600

    def test_the_same_key_repeats_the_answer(self, cpu: WireWorker) -> None:
        JobFactory.create()
        JobFactory.create()

        first, second = cpu.claim("key-1").json(), cpu.claim("key-1").json()
        other = cpu.claim("key-2").json()

        assert first.pop("lease_expires_in_s") >= second.pop("lease_expires_in_s")
        assert first == second
        assert other["id"] != first["id"]

    def test_a_key_whose_lease_has_ended_is_stale(self, cpu: WireWorker) -> None:
        JobFactory.create()
        claimed = cpu.claim("key-1").json()
        cpu.events(claimed, [{"seq": 1, "kind": "failed", "reason": "no_dockerfile", "detail": "There is none."}])

        answer = cpu.claim("key-1")

        assert (answer.status_code, answer.json()["code"]) == (409, "lease_stale")

    def test_nothing_to_do_is_204_without_a_body(self, cpu: WireWorker) -> None:
        answer = cpu.claim()

        assert (answer.status_code, answer.content) == (204, b"")

    @pytest.mark.parametrize("scheduling", ["draining", "disabled"])
    def test_a_worker_that_may_take_no_jobs_gets_none(self, cpu: WireWorker, scheduling: str) -> None:
        JobFactory.create()
        Worker.objects.update(scheduling=scheduling)

        assert cpu.claim().status_code == 204

    def test_a_full_worker_gets_none(self, cpu: WireWorker) -> None:
        JobFactory.create()

        assert cpu.claim(free_slots={"gpu": 0, "cpu": 0}).status_code == 204

    def test_the_key_is_required(self, cpu: WireWorker) -> None:
        body = {"session": cpu.session, "free_slots": {"gpu": 0, "cpu": 1}, "gpus": []}

        for headers in ({}, {"Idempotency-Key": ""}, {"Idempotency-Key": "x" * 129}, {"Idempotency-Key": "ключ"}):
            answer = cpu.post(f"{cpu.id}/jobs/claim", body, **headers)
            assert (answer.status_code, list(answer.json()["errors"])) == (422, ["Idempotency-Key"])

    def test_remote_claims_end_with_the_feature_and_local_ones_go_on(
        self, enroll: Enroll, cpu: WireWorker, settings: Any
    ) -> None:
        remote = enroll("gpu1")
        settings.OPENFACE_GPU_WORKERS_ENABLED = False

        answer = remote.claim()

        assert (answer.status_code, answer.json()["code"]) == (503, "gpu_workers_disabled")
        assert answer.headers["Retry-After"]
        assert remote.heartbeat().status_code == 200
        assert cpu.claim().status_code == 204


class TestGpuClaim:
    @pytest.fixture
    def gpu(self, enroll: Enroll) -> WireWorker:
        worker: WireWorker = enroll("gpu1", gpus=[GPU], gateway_url="http://127.0.0.1:18788")
        reachable(worker)
        return worker

    @pytest.fixture
    def job(self) -> Any:
        return JobFactory.create(requirement=RequirementFactory.create(kind=Requirement.Kind.GPU, gpu_count=1))

    def test_a_gpu_job_gets_a_whole_gpu_by_its_uuid(self, gpu: WireWorker, job: Job) -> None:
        body = gpu.claim().json()

        assert body["id"] == str(job.pk)
        assert body["gpus"] == [GPU["uuid"]]
        assert Reservation.objects.get().gpu.uuid == GPU["uuid"]

    def test_readings_of_the_claim_itself_count(self, gpu: WireWorker, job: Job) -> None:
        busy = GPU | {"free_vram_mib": 3000, "foreign": [{"pid": 4711, "name": "python", "mib": 21000}]}

        assert gpu.claim(gpus=[busy]).status_code == 204
        assert gpu.claim(gpus=[GPU]).status_code == 200

    def test_a_service_waits_for_a_reachable_gateway(self, gpu: WireWorker, job: Job) -> None:
        Worker.objects.update(gateway_status=Worker.Gateway.TIMEOUT)

        assert gpu.claim().status_code == 204

    @pytest.mark.parametrize(("allowed", "status"), [(True, 200), (False, 204)])
    def test_simulated_gpus_claim_only_where_that_is_allowed(
        self, gpu: WireWorker, job: Job, settings: Any, allowed: bool, status: int
    ) -> None:
        settings.OPENFACE_ALLOW_SIMULATED_GPUS = allowed
        gpu.gpus = [GPU | {"simulated": True}]
        gpu.heartbeat()

        assert gpu.claim().status_code == status

    def test_a_gpu_that_two_workers_report_belongs_to_the_one_heard_last(self, enroll: Enroll, job: Job) -> None:
        old = enroll("gpu1", gpus=[GPU], gateway_url="http://127.0.0.1:18788")
        new = enroll("gpu2", gpus=[GPU], gateway_url="http://127.0.0.1:18789")
        Worker.objects.update(gateway_status=Worker.Gateway.OK)

        first, second = offers_for([uuid.UUID(old.id), uuid.UUID(new.id)])

        assert (first.gpus[0].elsewhere, second.gpus[0].elsewhere) == ("gpu2", "")

    def test_a_gpu_that_two_workers_report_is_given_once(self, enroll: Enroll, job: Job) -> None:
        JobFactory.create(requirement=job.requirement)
        workers = [enroll(name, gpus=[GPU], gateway_url="http://127.0.0.1:18788") for name in ("gpu1", "gpu2")]
        Worker.objects.update(gateway_status=Worker.Gateway.OK)

        assert [worker.claim().status_code for worker in workers] == [200, 204]

    def test_a_card_that_was_moved_is_free_where_it_is_now(self, enroll: Enroll, job: Job) -> None:
        JobFactory.create(requirement=job.requirement)
        old = enroll("gpu1", gpus=[GPU], gateway_url="http://127.0.0.1:18788")
        Worker.objects.update(gateway_status=Worker.Gateway.OK)
        old.claim()
        Worker.objects.update(last_seen_at=ago(3600))
        new = enroll("gpu2", gpus=[GPU], gateway_url="http://127.0.0.1:18788")
        Worker.objects.update(gateway_status=Worker.Gateway.OK)

        assert new.claim().status_code == 200

    def test_a_driver_that_lists_no_gpu_at_the_claim_gets_no_gpu_job(self, gpu: WireWorker, job: Job) -> None:
        assert gpu.claim(gpus=[]).status_code == 204


class TestReports:
    def test_a_job_is_built_started_and_runs(self, cpu: WireWorker) -> None:
        job = JobFactory.create()
        claimed = cpu.claim().json()

        answer = cpu.events(
            claimed,
            [
                {"seq": 1, "kind": "building"},
                {"seq": 2, "kind": "starting"},
                {"seq": 3, "kind": "running", "image_id": "sha256:1f", "gpus": []},
            ],
            [{"stream": "build", "offset": 0, "text": "こんにちは\n"}],
        )

        assert answer.status_code == 200
        assert answer.json() == {
            "accepted_through": 3,
            "log_offsets": {"build": 16},
            "state": "running",
            "stop": None,
        }
        job.refresh_from_db()
        assert (job.state, job.image_id) == (JobState.RUNNING, "sha256:1f")

    def test_a_repeated_batch_changes_nothing(self, cpu: WireWorker) -> None:
        JobFactory.create()
        claimed = cpu.claim().json()
        batch = [{"seq": 1, "kind": "building"}]
        text = [{"stream": "build", "offset": 0, "text": "step 1\n"}]
        first = cpu.events(claimed, batch, text)
        events = JobEvent.objects.count()

        second = cpu.events(claimed, batch, text)

        assert second.json() == first.json()
        assert JobEvent.objects.count() == events

    def test_a_gap_is_told_with_the_expected_seq(self, cpu: WireWorker) -> None:
        JobFactory.create()
        claimed = cpu.claim().json()

        answer = cpu.events(claimed, [{"seq": 3, "kind": "building"}])

        assert answer.status_code == 409
        assert (answer.json()["code"], answer.json()["expected_seq"]) == ("event_gap", 1)

    def test_a_stop_wish_is_in_the_answer(self, cpu: WireWorker) -> None:
        job = JobFactory.create()
        claimed = cpu.claim().json()
        request_stop(job.pk, reason="Enough.")

        answer = cpu.events(claimed, [])

        assert answer.json()["state"] == "stopping"
        assert answer.json()["stop"] == {"reason": "Enough.", "grace_s": 10}
        assert complaints("events.response", answer.json()) == []

    def test_a_nul_in_a_log_keeps_the_offsets_true(self, cpu: WireWorker) -> None:
        JobFactory.create()
        claimed = cpu.claim().json()

        answer = cpu.events(claimed, [], [{"stream": "run", "offset": 0, "text": "a\x00b"}])

        assert answer.json()["log_offsets"] == {"run": 3}

    def test_an_unknown_kind_is_recorded_and_ignored(self, cpu: WireWorker) -> None:
        job = JobFactory.create()
        claimed = cpu.claim().json()

        answer = cpu.events(claimed, [{"seq": 1, "kind": "hibernated"}, {"seq": 2, "kind": "building"}])

        assert (answer.status_code, answer.json()["accepted_through"]) == (200, 2)
        assert JobEvent.objects.get(job=job, event="hibernated").ignored

    def test_a_lease_is_renewed(self, cpu: WireWorker) -> None:
        JobFactory.create()
        claimed = cpu.claim().json()

        answer = cpu.post(f"{cpu.id}/jobs/{claimed['id']}/lease", {"session": cpu.session, "lease": claimed["lease"]})

        assert answer.status_code == 200
        assert complaints("lease.response", answer.json()) == []

    def test_a_job_that_does_not_exist_is_404(self, cpu: WireWorker) -> None:
        answer = cpu.events({"id": cpu.id, "lease": cpu.id}, [])

        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


class TestHolds:
    def test_a_claim_whose_answer_was_lost_returns_to_the_line_at_register(self, cpu: WireWorker) -> None:
        job = JobFactory.create()
        cpu.claim()

        cpu.register(holds=[])

        job.refresh_from_db()
        assert (job.state, job.attempts) == (JobState.QUEUED, 0)

    def test_a_held_lease_is_kept_with_all_the_worker_needs(self, cpu: WireWorker) -> None:
        JobFactory.create()
        claimed = cpu.claim().json()
        cpu.events(claimed, [{"seq": 1, "kind": "building"}], [{"stream": "build", "offset": 0, "text": "x"}])

        answer = cpu.register(holds=[hold(claimed, "building")])

        (lease,) = answer["leases"]
        assert (lease["lease"], lease["want"], lease["next_seq"]) == (claimed["lease"], "keep", 2)
        assert (lease["log_offsets"], lease["runtime_token"]) == ({"build": 1}, claimed["runtime_token"])
        assert complaints("register.response", answer) == []

    def test_a_stop_is_wanted_in_the_next_heartbeat(self, cpu: WireWorker) -> None:
        job = JobFactory.create()
        claimed = cpu.claim().json()
        request_stop(job.pk)

        (lease,) = cpu.heartbeat(holds=[hold(claimed, "building")]).json()["leases"]

        assert (lease["want"], lease["grace_s"]) == ("stop", 10)

    def test_an_ended_lease_is_to_be_removed_until_it_is_gone(self, cpu: WireWorker) -> None:
        JobFactory.create()
        claimed = cpu.claim().json()
        cpu.events(claimed, [{"seq": 1, "kind": "failed", "reason": "build_failed", "detail": "It failed."}])

        (lease,) = cpu.heartbeat(holds=[hold(claimed, "exited")]).json()["leases"]
        assert lease["want"] == "remove"
        assert Lease.objects.get().cleared_at is None

        assert cpu.heartbeat(holds=[]).json()["leases"] == []
        assert Lease.objects.get().cleared_at is not None

    def test_an_engine_that_does_not_answer_clears_nothing(self, cpu: WireWorker) -> None:
        job = JobFactory.create()
        claimed = cpu.claim().json()

        cpu.heartbeat(holds=None)
        (lease,) = cpu.heartbeat(holds=None).json()["leases"]

        assert (lease["lease"], lease["want"]) == (claimed["lease"], "keep")
        job.refresh_from_db()
        assert job.state == JobState.LEASED
