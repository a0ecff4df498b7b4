"""A small town to look at: a Space in each state, with two machines that serve them."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.auth.models import User

from jobs import lifecycle
from jobs.models import Job
from jobs.scheduling import RequirementSpec
from spaces.models import Space
from tests.factories import GpuWorkerFactory, UptimeFactory, WorkerFactory
from tests.spaces.pages import runs
from tests.spaces.repositories import make_space
from workers.models import Worker

PASSWORD = "correct horse battery"

BUILD_LOG = """#4 [1/6] FROM docker.io/library/python:3.11-slim
#4 CACHED
#5 [2/6] WORKDIR /app
#5 DONE 0.1s
#6 [3/6] COPY requirements.txt .
#6 DONE 0.1s
#7 [4/6] RUN pip install --no-cache-dir -r requirements.txt
#7 1.204 Collecting gradio==6.0.1
#7 1.398   Downloading gradio-6.0.1-py3-none-any.whl (21.4 MB)
#7 4.021 Collecting numpy
"""
FAILED_LOG = (
    BUILD_LOG
    + """#7 4.912 \x1b[31mERROR: Could not find a version that satisfies the requirement torch==2.9.1+cu118\x1b[0m
#7 4.913 ERROR: No matching distribution found for torch==2.9.1+cu118
#7 ERROR: process "/bin/sh -c pip install -r requirements.txt" did not complete successfully: exit code: 1
"""
)


@dataclass(frozen=True)
class Town:
    """What stands where."""

    owner: User
    cpu: Worker
    gpu: Worker
    spaces: dict[str, Space]

    def path(self, state: str, tab: str = "") -> str:
        return f"/spaces/{self.spaces[state]}/{tab}"


def readme(title: str, emoji: str, colours: tuple[str, str], description: str) -> str:
    head = f"title: {title}\nemoji: {emoji}\ncolorFrom: {colours[0]}\ncolorTo: {colours[1]}\nsdk: docker\n"
    body = (
        f"# {title}\n\n{description}\n\n## Use\n\nOpen the app and press *Record*. See [the app](app.py).\n\n"
        "```sh\npip install -r requirements.txt\npython app.py\n```\n\n| column | meaning |\n|---|---|\n| a | first |\n"
    )
    return f"---\n{head}short_description: {description}\n---\n{body}"


def build_town() -> Town:
    """Build it anew in the test's database and repositories."""
    UptimeFactory.create()
    owner = User.objects.create_user("mika", password=PASSWORD)
    cpu = WorkerFactory.create(name="cpu1")
    gpu = GpuWorkerFactory.create(
        name="atlas",
        gpus=[
            {"model": "NVIDIA GeForce RTX 4090"},
            {
                "model": "NVIDIA GeForce RTX 3060",
                "total_vram_mib": 12_287,
                "free_vram_mib": 2_300,
                "foreign": [{"pid": 48213, "name": "python3", "mib": 9_900}],
            },
        ],
    )
    plans: dict[str, tuple[str, str, str, tuple[str, str], str]] = {
        "running": (
            "mika/minutes",
            "Meeting Minutes",
            "🎙️",
            ("blue", "green"),
            "Names the speakers, writes the minutes.",
        ),
        "building": ("mika/flux-atelier", "Flux Atelier", "🎨", ("yellow", "red"), "Product shots from a sentence."),
        "queued": ("noor/llama-lab", "Llama Lab", "🦙", ("yellow", "green"), "Side-by-side answers of two models."),
        "failed": ("sato/ocr-desk", "OCR Desk", "🧾", ("pink", "yellow"), "Receipts and forms to tables."),
        "idle": ("mika/flood-map", "Flood Map", "🗺️", ("blue", "indigo"), "Water level from satellite tiles."),
        "unavailable": ("sato/xray", "Chest X-ray Triage", "🩻", ("gray", "gray"), "Marks regions to look at twice."),
        "stopped": ("mika/cat-or-not", "Cat or Not", "🐈", ("gray", "blue"), "The smallest Space there is."),
    }
    spaces = {
        state: make_space(
            name,
            files={
                "README.md": readme(title, emoji, colours, text),
                "Dockerfile": "ARG BASE_IMAGE=python:3.11-slim\nFROM ${BASE_IMAGE}\nCOPY . /app\n",
                "app.py": "import gradio as gr\n\nprint('hello')\n",
                "static/style.css": "body { color: red }\n",
            },
            topics=("space", "gpu") if state in ("running", "queued") else ("space",),
        )
        for state, (name, title, emoji, colours, text) in plans.items()
    }
    town = Town(owner, cpu, gpu, spaces)
    _populate(town)
    return town


def _populate(town: Town) -> None:
    runs.submit(town.spaces["running"], requirement=runs.GPU)
    running = runs.claim(town.gpu)
    running.write("system", f"revision {running.job.revision} · worker atlas · lease {running.lease.pk}\n")
    running.to_running().write("run", "\x1b[32mINFO\x1b[0m:     Uvicorn running on http://0.0.0.0:7860\n")
    for state in ("unavailable", "stopped", "failed", "building"):
        runs.submit(town.spaces[state])
        attempt = runs.claim(town.cpu)
        if state == "unavailable":
            attempt.to_running()
            _lose(attempt.job, town.cpu)
        elif state == "stopped":
            attempt.to_running()
            lifecycle.request_stop(attempt.job.pk, actor=town.owner)
            attempt.report("stopped")
        elif state == "failed":
            attempt.report("building").write("build", FAILED_LOG)
            attempt.report("failed", reason="build_failed", detail="The build ended with exit code 1.")
        else:
            attempt.report("building").write("build", BUILD_LOG)
    runs.submit(town.spaces["queued"], requirement=RequirementSpec(kind="gpu", gpu_count=1, vram_mib=19_073))


def _lose(job: Job, worker: Worker) -> None:
    """What the keeper does when a worker is silent."""
    from jobs.clock import database_now

    lifecycle.mark_silent(job.pk, worker_name=worker.name, since=worker.last_seen_at, now=database_now())
