"""A start pins the newest commit and everything the job is told; a stop always wins."""

from __future__ import annotations

import json
import uuid

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.test import RequestFactory
from pytest_django import Settings

from jobs.lifecycle import Report, claim_next, record
from jobs.models import AuditEvent, Job
from jobs.states import JobState
from spaces import launch
from spaces.forge.errors import EmptyRepository, Forbidden, NotFound
from spaces.forge.local_writes import find_repository
from spaces.models import LocalCollaborator, LocalRepository, Space
from tests.factories import WorkerFactory
from tests.spaces.repositories import README, commit, make_space

pytestmark = pytest.mark.django_db


def collaborate(full_name: str, user: User, permission: str) -> None:
    LocalCollaborator.objects.create(
        repository=find_repository(*full_name.split("/")), user=user, permission=permission
    )


def readme(*lines: str) -> dict[str, str]:
    return {"README.md": "---\n" + "\n".join(lines) + "\n---\n", "Dockerfile": "FROM scratch\n"}


def bring_to_running(job: Job) -> None:
    """Let a worker claim the job and report that it runs."""
    worker = WorkerFactory.create()
    claim = claim_next(worker.pk, session=1, free_gpu=1, free_cpu=1, key=str(uuid.uuid4()))
    assert claim is not None and claim.job.pk == job.pk
    reports = [Report(1, "building", {}), Report(2, "starting", {}), Report(3, "running", {"image_id": "sha256:1"})]
    record(worker.pk, session=1, job_id=job.pk, lease_id=claim.lease.pk, reports=reports, logs=[])


# --- what is started -------------------------------------------------------------------------------------------------


def test_a_start_pins_the_commit_that_is_newest_at_that_moment(owner: User) -> None:
    space = make_space("alice/app")
    newest = commit("alice/app", {"README.md": README.replace("A title", "Newest")})

    job = launch.start(space, user=owner)
    commit("alice/app", {"README.md": "later\n"})

    job.refresh_from_db()
    assert (job.revision, job.state, job.repository_id) == (newest, JobState.QUEUED, space.repository_id)
    shown = Space.objects.get()
    assert (shown.head_revision, shown.title) == (newest, "Newest")


def test_a_second_start_is_the_first_one(owner: User) -> None:
    space = make_space("alice/app")

    first = launch.start(space, user=owner)
    commit("alice/app", {"README.md": "later\n"})
    second = launch.start(space, user=owner)

    assert second == first
    assert Job.objects.count() == 1


def test_a_restart_takes_the_newest_commit_and_waits_for_the_old_job_to_end(owner: User) -> None:
    space = make_space("alice/app")
    first = launch.start(space, user=owner)
    bring_to_running(first)
    newest = commit("alice/app", {"README.md": "later\n"})

    second = launch.start(space, user=owner, replace=True)

    first.refresh_from_db()
    assert first.state == JobState.STOPPING
    assert (second.revision, second.replaces, second.blocked_by) == (newest, first, first)


def test_start_right_after_stop_works(owner: User) -> None:
    space = make_space("alice/app")
    first = launch.start(space, user=owner)
    bring_to_running(first)
    launch.stop(space, user=owner)

    second = launch.start(space, user=owner)

    assert second != first
    assert (second.state, second.blocked_by) == (JobState.QUEUED, first)


def test_an_empty_repository_cannot_be_started_and_nothing_is_queued(owner: User) -> None:
    space = make_space("alice/empty", files=None)

    with pytest.raises(EmptyRepository):
        launch.start(space, user=owner)
    assert not Job.objects.exists()


# --- who may ---------------------------------------------------------------------------------------------------------


def test_write_permission_starts_and_stops(owner: User, teammate: User, operator: User) -> None:
    space = make_space("alice/app", visibility="private")
    collaborate("alice/app", teammate, "write")

    for user in (owner, teammate, operator):
        assert launch.start(space, user=user).requested_by == user
        assert launch.stop(space, user=user) is not None


@pytest.mark.parametrize("visibility", ["public", "internal", "private"])
def test_a_reader_is_told_why_he_may_not(teammate: User, visibility: str) -> None:
    space = make_space("alice/app", visibility=visibility)
    collaborate("alice/app", teammate, "read")

    for act in (launch.start, launch.stop):
        with pytest.raises(Forbidden, match="needs write permission on its repository"):
            act(space, user=teammate)
    assert not Job.objects.exists()
    assert not AuditEvent.objects.exists()


def test_for_a_stranger_a_private_space_is_not_there(stranger: User, nobody: AnonymousUser) -> None:
    space = make_space("alice/secret", visibility="private")

    for user in (stranger, nobody):
        for act in (launch.start, launch.stop):
            with pytest.raises(NotFound):
                act(space, user=user)


def test_a_right_that_was_taken_away_is_gone_at_once(teammate: User) -> None:
    space = make_space("alice/app", visibility="private")
    collaborate("alice/app", teammate, "write")
    launch.start(space, user=teammate)
    LocalCollaborator.objects.all().delete()

    with pytest.raises(NotFound):
        launch.stop(space, user=teammate)


# --- stop ------------------------------------------------------------------------------------------------------------


def test_a_stop_before_anybody_took_it_cancels_it(owner: User) -> None:
    space = make_space("alice/app")
    job = launch.start(space, user=owner)

    stopped = launch.stop(space, user=owner)

    assert stopped == job
    assert stopped is not None and stopped.state == JobState.CANCELLED


def test_a_stop_also_takes_the_restart_that_waits_behind(owner: User) -> None:
    space = make_space("alice/app")
    first = launch.start(space, user=owner)
    bring_to_running(first)
    second = launch.start(space, user=owner, replace=True)

    launch.stop(space, user=owner)

    assert {job.pk: job.state for job in Job.objects.all()} == {
        first.pk: JobState.STOPPING,
        second.pk: JobState.CANCELLED,
    }


def test_a_stop_where_nothing_is_active_is_nothing(owner: User) -> None:
    assert launch.stop(make_space("alice/app"), user=owner) is None
    assert not AuditEvent.objects.exists()


# --- what the job needs ----------------------------------------------------------------------------------------------


def test_topics_become_the_job_s_requirement(owner: User) -> None:
    space = make_space("alice/app", topics=["space", "gpu", "vram-12gb", "gpus-2"])

    need = launch.start(space, user=owner).requirement

    assert (need.kind, need.gpu_count, need.vram_mib, need.worker) == ("gpu", 2, 11_444, None)


def test_topics_count_as_they_are_now_and_not_as_the_row_remembers(owner: User) -> None:
    space = make_space("alice/app")
    LocalRepository.objects.update(topics=["gpu", "space"])

    assert launch.start(space, user=owner).requirement.kind == "gpu"


def test_a_benchmark_is_a_batch_job(owner: User) -> None:
    job = launch.start(make_space("alice/bench", topics=["benchmark"]), user=owner)

    assert (job.kind, job.mode) == ("benchmark", "batch")


def test_front_matter_never_places_a_job(owner: User) -> None:
    space = make_space("alice/app", files=readme("hardware: a100", "suggested_hardware: t4-small", "gpu: true"))

    assert launch.start(space, user=owner).requirement.kind == "cpu"


@pytest.mark.parametrize(
    ("topics", "placement", "kind", "count", "vram"),
    [
        (["space", "gpu", "vram-12gb"], Space.Placement.CPU, "cpu", 0, None),
        (["space"], Space.Placement.GPU, "gpu", 1, None),
        (["space", "gpu", "vram-12gb"], Space.Placement.GPU, "gpu", 1, 11_444),
    ],
)
def test_the_operator_s_placement_goes_before_the_topics(
    owner: User, topics: list[str], placement: str, kind: str, count: int, vram: int | None
) -> None:
    space = make_space("alice/app", topics=topics)
    Space.objects.update(placement=placement)

    need = launch.start(space, user=owner).requirement

    assert (need.kind, need.gpu_count, need.vram_mib) == (kind, count, vram)


def test_a_named_worker_is_part_of_the_requirement(owner: User) -> None:
    worker = WorkerFactory.create(name="gpu1")
    space = make_space("alice/app", topics=["space", "gpu"])
    Space.objects.update(placement=Space.Placement.WORKER, placement_worker=worker)

    need = launch.start(space, user=owner).requirement

    assert (need.kind, need.worker) == ("gpu", worker)


# --- what the job is told --------------------------------------------------------------------------------------------


def test_the_job_is_told_what_the_readme_says(owner: User) -> None:
    versions = ("sdk_version: 5.49.1", "python_version: 3.10")
    files = readme("sdk: gradio", "app_file: main.py", "app_port: 8080", "startup_duration_timeout: 10m", *versions)

    spec = launch.start(make_space("alice/app", files=files), user=owner).spec

    assert (spec["sdk"], spec["app_file"], spec["app_port"], spec["startup_timeout_s"]) == (
        "gradio",
        "main.py",
        8080,
        600,
    )
    assert (spec["sdk_version"], spec["python_version"]) == ("5.49.1", "3.10")
    assert (spec["prefix"], spec["rewrite_host"], spec["warnings"]) == ("detect", False, [])


def test_what_the_readme_does_not_say_is_left_to_the_worker(owner: User) -> None:
    spec = launch.start(make_space("alice/app", files={"Dockerfile": "FROM scratch\n"}), user=owner).spec

    assert (spec["sdk"], spec["app_file"], spec["app_port"], spec["startup_timeout_s"]) == (None, None, 7860, None)


def test_the_row_s_settings_go_before_the_readme(owner: User) -> None:
    files = readme("app_port: 8080", "startup_duration_timeout: 10m", "prefix: keep", "rewrite_host: true")
    space = make_space("alice/app", files=files)
    Space.objects.update(app_port=9000, startup_timeout_seconds=77, keep_prefix=False, rewrite_host=False)

    spec = launch.start(space, user=owner).spec

    assert (spec["app_port"], spec["startup_timeout_s"]) == (9000, 77)
    assert (spec["prefix"], spec["rewrite_host"]) == ("strip", False)


@pytest.mark.parametrize(
    ("said", "set_to", "told"),
    [
        ("prefix: keep", None, "keep"),
        ("prefix: strip", None, "strip"),
        ("prefix: detect", None, "detect"),
        ("title: x", None, "detect"),
        ("prefix: keep", False, "strip"),
        ("prefix: strip", True, "keep"),
        ("prefix: detect", True, "keep"),
    ],
)
def test_a_setting_goes_before_the_readme_and_both_before_detection(
    owner: User, said: str, set_to: bool | None, told: str
) -> None:
    space = make_space("alice/app", files=readme(said))
    Space.objects.update(keep_prefix=set_to)

    assert launch.start(space, user=owner).spec["prefix"] == told


def test_an_app_learns_where_it_lives(owner: User, settings: Settings) -> None:
    settings.OPENFACE_RUNTIME_ORIGIN = "https://run.openface.example:8443"
    files = readme("title: My app", "app_port: 8080")

    told = launch.start(make_space("Alice/App", files=files), user=owner).spec["environment"]

    base = "/run/Alice/App"
    assert told["OPENFACE_BASE_PATH"] == told["GRADIO_ROOT_PATH"] == told["UVICORN_ROOT_PATH"] == base
    assert told["CHAINLIT_PARENT_ROOT_PATH"] == base
    assert (told["DASH_REQUESTS_PATHNAME_PREFIX"], told["DASH_ROUTES_PATHNAME_PREFIX"]) == (f"{base}/", "/")
    assert told["PUBLIC_URL"] == f"https://run.openface.example:8443{base}"
    assert told["FORWARDED_ALLOW_IPS"] == "*"
    assert (told["SPACE_ID"], told["SPACE_AUTHOR_NAME"], told["SPACE_REPO_NAME"]) == ("Alice/App", "Alice", "App")
    assert (told["SPACE_TITLE"], told["SPACE_HOST"]) == ("My app", "run.openface.example:8443")
    assert (told["GRADIO_SERVER_PORT"], told["STREAMLIT_SERVER_PORT"]) == ("8080", "8080")


def test_an_app_that_keeps_its_prefix_is_not_told_to_add_it_once_more(owner: User) -> None:
    spec = launch.start(make_space("alice/lab", files=readme("prefix: keep")), user=owner).spec

    told = spec["environment"]
    assert spec["prefix"] == "keep"
    assert told["OPENFACE_BASE_PATH"] == told["CHAINLIT_ROOT_PATH"] == "/run/alice/lab"
    assert told.keys().isdisjoint({"GRADIO_ROOT_PATH", "UVICORN_ROOT_PATH", "DASH_ROUTES_PATHNAME_PREFIX"})


def test_nothing_that_the_job_is_told_sets_what_only_the_worker_knows(owner: User) -> None:
    told = launch.start(make_space("alice/app"), user=owner).spec["environment"]

    assert all(isinstance(value, str) for value in told.values())
    assert "PORT" not in told
    assert not [name for name in told if name.startswith(("NVIDIA_", "CUDA_"))]


def test_what_is_wrong_in_topics_and_readme_travels_with_the_job(owner: User) -> None:
    space = make_space("alice/app", topics=["space", "gpus-0"], files=readme("app_port: nonsense"))

    spec = launch.start(space, user=owner).spec

    assert spec["warnings"] == [
        {"code": "topic_no_count", "facts": {"topic": "gpus-0", "most": 16}},
        {"code": "readme_port", "facts": {"key": "app_port"}},
    ]
    assert json.loads(json.dumps(spec)) == spec


# --- the record ------------------------------------------------------------------------------------------------------


def test_every_act_is_in_the_audit_log(owner: User) -> None:
    space = make_space("alice/app")
    request = RequestFactory().post("/", REMOTE_ADDR="192.0.2.7")

    first = launch.start(space, user=owner, request=request)
    second = launch.start(space, user=owner, replace=True, request=request)
    launch.stop(space, user=owner, request=request)

    events = list(AuditEvent.objects.order_by("id"))
    assert [event.act for event in events] == ["space_start", "space_restart", "space_stop"]
    assert {(event.actor_name, event.object_name, event.address) for event in events} == {
        ("alice", "alice/app", "192.0.2.7")
    }
    assert events[0].after == {"job": str(first.pk), "revision": first.revision}
    assert events[2].after == {"jobs": [str(second.pk)]}


@pytest.mark.parametrize(
    ("operators", "readmes", "told"),
    [(3600, "30m", 1800), (3600, "2h", 3600), (3600, None, 3600), (0, "30m", 1800), (0, None, None)],
)
def test_a_readme_can_only_shorten_what_a_batch_job_may_compute(
    owner: User, settings: Settings, operators: int, readmes: str | None, told: int | None
) -> None:
    settings.OPENFACE_BATCH_TIME_LIMIT_SECONDS = operators
    files = readme(f"run_duration_timeout: {readmes}") if readmes else {"Dockerfile": "FROM scratch\n"}

    spec = launch.start(make_space("alice/bench", files=files, topics=["benchmark"]), user=owner).spec

    assert spec["limits"] == {"run_timeout_s": told}
