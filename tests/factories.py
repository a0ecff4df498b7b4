"""Valid defaults for rows, so that a test states only what matters to it."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import factory
from django.contrib.auth.models import User
from django.utils import timezone

from jobs.models import Job, Requirement, Uptime
from spaces.models import Space, Visibility
from workers.models import Gpu, Worker

REVISION = "0123456789abcdef0123456789abcdef01234567"


class UserFactory(factory.django.DjangoModelFactory[User]):
    class Meta:
        model = User
        skip_postgeneration_save = True

    username = factory.Sequence(lambda n: f"user{n}")


class SpaceFactory(factory.django.DjangoModelFactory[Space]):
    class Meta:
        model = Space

    repository_id = factory.Sequence(lambda n: f"r{n}")
    owner = "owner"
    name = factory.Sequence(lambda n: f"space{n}")
    visibility = Visibility.PUBLIC
    topics = factory.LazyFunction(lambda: ["space"])
    head_revision = REVISION


class WorkerFactory(factory.django.DjangoModelFactory[Worker]):
    """A local CPU worker that was heard just now."""

    class Meta:
        model = Worker

    name = factory.Sequence(lambda n: f"worker{n}")
    local = True
    session = 1
    last_seen_at = factory.LazyFunction(timezone.now)
    registered_at = factory.LazyFunction(timezone.now)
    gateway_url = "http://127.0.0.1:8787"
    gateway_status = Worker.Gateway.OK
    max_cpu_jobs = 100
    max_gpu_jobs = 0
    features = factory.LazyFunction(lambda: ["cpu"])


class GpuWorkerFactory(WorkerFactory):
    """A remote worker with one idle RTX 4090."""

    local = False
    max_cpu_jobs = 0
    max_gpu_jobs = 4
    features = factory.LazyFunction(lambda: ["cpu", "nvidia", "cuda"])

    @factory.post_generation
    def gpus(obj: Worker, create: bool, extracted: list[dict[str, Any]] | None, **kwargs: Any) -> None:
        for number, facts in enumerate(extracted if extracted is not None else [{}]):
            GpuFactory.create(worker=obj, index=number, **facts)

    class Meta:
        model = Worker
        skip_postgeneration_save = True


class GpuFactory(factory.django.DjangoModelFactory[Gpu]):
    class Meta:
        model = Gpu

    worker = factory.SubFactory(WorkerFactory, local=False)
    uuid = factory.LazyFunction(lambda: f"GPU-{uuid.uuid4()}")
    vendor = "nvidia"
    model = "NVIDIA GeForce RTX 4090"
    total_vram_mib = 24_564
    free_vram_mib = 24_100
    reported_at = factory.LazyFunction(timezone.now)


class RequirementFactory(factory.django.DjangoModelFactory[Requirement]):
    class Meta:
        model = Requirement
        django_get_or_create = ("kind", "gpu_count", "vram_mib", "exclusive", "features", "worker")

    kind = Requirement.Kind.CPU
    gpu_count = 0
    vram_mib = None
    exclusive = False
    features = factory.LazyFunction(list)
    worker = None


class JobFactory(factory.django.DjangoModelFactory[Job]):
    """A queued CPU job of a Space of its own."""

    class Meta:
        model = Job

    space = factory.SubFactory(SpaceFactory)
    repository_id = factory.SelfAttribute("space.repository_id")
    owner = factory.SelfAttribute("space.owner")
    repo = factory.SelfAttribute("space.name")
    revision = REVISION
    requirement = factory.SubFactory(RequirementFactory)


class UptimeFactory(factory.django.DjangoModelFactory[Uptime]):
    """The control plane has been up for a day and stamps just now; without it, nobody counts as silent."""

    class Meta:
        model = Uptime
        django_get_or_create = ("id",)

    id = 1
    up_since = factory.LazyFunction(lambda: ago(86_400))
    alive_at = factory.LazyFunction(timezone.now)


def ago(seconds: float) -> Any:
    """A moment that many seconds in the past."""
    return timezone.now() - timedelta(seconds=seconds)
