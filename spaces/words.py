"""The words people read for states, badges and reasons: one place, for every face of the product.

Codes are stable and stored; sentences are neither. A code that is not here falls back to the sentence that was stored
with it, so a newer worker can speak to an older portal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from django.utils.translation import get_language, gettext_lazy, ngettext, pgettext_lazy
from django.utils.translation import gettext as _

from jobs import state_names
from jobs.states import JobState
from spaces.durations import needed_memory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django.utils.functional import _StrPromise

    from jobs.models import Job, Requirement

    class Needs(Protocol):
        """A class of needs: a row of Requirement, or the scheduler's RequirementSpec."""

        @property
        def kind(self) -> str: ...
        @property
        def gpu_count(self) -> int: ...
        @property
        def vram_mib(self) -> int | None: ...


ON_DEMAND = "ondemand"  # a Space without any job: it runs when somebody starts it
STOPPED = "stopped"  # how people call a job that was stopped, whether it ever ran (completed) or not (cancelled)

STATE_NAMES: Mapping[str, _StrPromise] = {
    **state_names.STATE_NAMES,
    ON_DEMAND: pgettext_lazy("state", "On demand"),
    STOPPED: pgettext_lazy("state", "Stopped"),
}

# Sentences for reasons that need no facts beyond their code.
REASONS: Mapping[str, _StrPromise] = {
    # written by lifecycle
    "stopped_by_person": gettext_lazy("Stop was requested."),
    "superseded": gettext_lazy("Replaced by a newer start."),
    "claimed": gettext_lazy("A worker took it."),
    "lease_expired": gettext_lazy("The worker did not renew its lease in time."),
    "lease_resumed": gettext_lazy("The worker came back before anybody else took it."),
    "too_many_attempts": gettext_lazy("Every attempt ended without an answer from its worker."),
    "worker_silent": gettext_lazy("Its worker is not heard from, so nobody knows whether it runs."),
    "worker_back": gettext_lazy("The worker is back, and the app never stopped."),
    "worker_revoked": gettext_lazy("Its worker was revoked."),
    "worker_disabled": gettext_lazy("Its worker was disabled."),
    "gpu_workers_disabled": gettext_lazy("Remote GPU workers are switched off on this server."),
    "gpu_workers_enabled": gettext_lazy("Remote GPU workers are switched on again; the app never stopped."),
    "placement_changed": gettext_lazy("An operator changed where it may run."),
    "claim_answer_lost": gettext_lazy("The worker does not have it; it goes back to the line."),
    "container_lost": gettext_lazy("Its container is gone from the worker."),
    "vram_exceeded": gettext_lazy("It uses more GPU memory than it reserved."),
    "delivering": gettext_lazy("It has ended, and its results are being delivered."),
    "app_well": gettext_lazy("It answers again."),
    "app_silent": gettext_lazy("Nothing answers on its port."),
    "app_frozen": gettext_lazy("Its container is paused on the machine."),
    "app_lost_gpu": gettext_lazy("It runs, but its GPU is lost inside its container; a restart brings it back."),
    # reported by workers
    "host_rebooted": gettext_lazy("The machine was restarted; the same image starts again."),
    "engine_restarted": gettext_lazy("The container engine was restarted; the same image starts again."),
    "shutdown": gettext_lazy("The worker was shut down before it began to serve."),
    "gpu_gone": gettext_lazy("The GPU it was to use is gone."),
    "disk_floor": gettext_lazy("The worker's disk is too full."),
    "paused": gettext_lazy("The owner of the machine paused it, so it goes back to the line."),
    "needs_cuda": gettext_lazy("Its image needs a newer CUDA than the driver of the worker has."),
    "no_dockerfile": gettext_lazy("The repository has neither a Dockerfile nor an app_file."),
    "dockerfile_unusable": gettext_lazy("The repository's Dockerfile is not a file of the repository."),
    "readme_unusable": gettext_lazy("A version in the README is none, or a file for the installation is too large."),
    "packages_unusable": gettext_lazy("A line of packages.txt cannot be the name of a Debian package."),
    "no_app_file": gettext_lazy("The app_file is not a file of the repository, or none is named."),
    "commit_gone": gettext_lazy("The commit no longer exists in the repository."),
    "source_failed": gettext_lazy("The repository could not be fetched."),
    "git_lfs_missing": gettext_lazy("The repository uses Git LFS, and the worker has no git-lfs."),
    "lfs_object_missing": gettext_lazy("A file is in Git LFS, and the server does not have its object."),
    "submodule_refused": gettext_lazy("One of its submodules cannot be read here."),
    "source_too_large": gettext_lazy("The repository is larger than the worker takes."),
    "disk_full": gettext_lazy("The worker's disk is full, also after a clean-up."),
    "no_buildkit": gettext_lazy("The worker has no docker command line with BuildKit."),
    "engine_refused": gettext_lazy("The container engine refused."),
    "start_failed": gettext_lazy("The app could not be started."),
    "exited_before_ready": gettext_lazy("It ended before it answered on its port."),
    "process_lost": gettext_lazy("The app's process is gone."),
    "disconnected": gettext_lazy("Its worker was cut off for longer than this job may run alone."),
    "build_failed": gettext_lazy("The build failed."),
    "no_base_image": gettext_lazy("The base image could not be fetched."),
    "image_not_lent": gettext_lazy("The build wants an image that is the worker's own."),
    "syntax_refused": gettext_lazy("The Dockerfile asks to be read by a program that the worker does not run."),
    "syntax_unavailable": gettext_lazy("The image that the Dockerfile names after # syntax= could not be fetched."),
    "syntax_too_new": gettext_lazy("The Dockerfile uses syntax that the worker's BuildKit does not know."),
    "build_timeout": gettext_lazy("The build took longer than it may."),
    "build_out_of_memory": gettext_lazy("The build ran out of memory and was ended."),
    "build_too_many_processes": gettext_lazy("The build started more processes than it may and was ended."),
    "startup_timeout": gettext_lazy("It did not answer on its port in time."),
    "time_limit": gettext_lazy("It computed for longer than it may."),
    "exited": gettext_lazy("It ended by itself."),
    "oom_killed": gettext_lazy("It ran out of memory and was killed."),
    "disk_limit": gettext_lazy("It wrote more to the worker's disk than there was room for, and was stopped."),
    "building": gettext_lazy("The image is being built."),
    "starting": gettext_lazy("The app is being started."),
    "running": gettext_lazy("Its port answers."),
    "stopped": gettext_lazy("It was stopped."),
}


@dataclass(frozen=True)
class Badge:
    """What a badge shows: a glyph and class named after the state, the kind of machine, and the word."""

    state: str  # a wire string, or ON_DEMAND: names the glyph and the class
    kind: str  # "GPU" or "CPU"
    name: str

    @property
    def text(self) -> str:
        return f"{self.kind} · {self.name}"


def completes(job: Job) -> bool:
    """Whether people call this job's end completed: a batch job's, unless it was stopped before it had computed all."""
    return job.mode == job.Mode.BATCH and (job.stop_requested_at is None or job.exit_code == 0)


def state_name(state: str, *, completes: bool = False) -> str:
    """Return the word for a state. What is completed was stopped, but for a job of which `completes` is true."""
    key = STOPPED if state == JobState.COMPLETED and not completes else state
    return str(STATE_NAMES.get(key, state))


def badge(job: Job | None, *, kind: str) -> Badge:
    """Return the badge of a Space whose newest job is `job`; `kind` is "gpu" or "cpu"."""
    if job is None:
        return Badge(state=ON_DEMAND, kind=kind.upper(), name=state_name(ON_DEMAND))
    return Badge(state=job.state, kind=kind.upper(), name=state_name(job.state, completes=completes(job)))


def needs(requirement: Needs, *, worker: str = "") -> str:
    """Return what a class of jobs asks for, in a few words; with the worker that an operator named, where one is."""
    wanted = _needed(requirement)
    return _("%(needs)s, on %(worker)s only") % {"needs": wanted, "worker": worker} if worker else wanted


def needs_of(requirement: Requirement) -> str:
    """Return the same for a row, with the worker that it names. A query, unless the worker was read with it."""
    return needs(requirement, worker=requirement.worker.name if requirement.worker is not None else "")


PLACEMENTS: Mapping[str, _StrPromise] = {
    "automatic": pgettext_lazy("placement", "Automatic"),
    "cpu": pgettext_lazy("placement", "On a CPU"),
    "gpu": pgettext_lazy("placement", "On a GPU"),
    "worker": pgettext_lazy("placement", "On one worker"),
}

PLACEMENTS_EXPLAINED: Mapping[str, _StrPromise] = {
    "automatic": gettext_lazy("The topics of the repository decide."),
    "cpu": gettext_lazy("No GPU, whatever the topics say. An app that insists on CUDA fails there."),
    "gpu": gettext_lazy("As the topics say where they ask for a GPU, else one whole GPU."),
    "worker": gettext_lazy("On that worker and no other. It waits while that worker is away."),
}


def placement(value: str, worker: str = "") -> str:
    """Return where an operator placed a Space, in a few words."""
    if worker:
        return _("On %(worker)s only") % {"worker": worker}
    return str(PLACEMENTS.get(value, value))


def _needed(requirement: Needs) -> str:
    count = requirement.gpu_count
    if requirement.kind == "cpu":
        return _("a CPU worker")
    if requirement.vram_mib:
        memory = needed_memory(requirement.vram_mib)
        if count > 1:
            return _("%(count)d GPUs with at least %(memory)s") % {"count": count, "memory": memory}
        return _("a GPU with at least %(memory)s") % {"memory": memory}
    return _("%(count)d whole GPUs") % {"count": count} if count > 1 else _("a whole GPU")


def gpu_name(index: int, model: str) -> str:
    """Return a GPU as people name it: its number on its worker and the short form of its model."""
    short = model.removeprefix("NVIDIA ").removeprefix("GeForce ")
    return f"GPU {index} {short}".strip()


def simulated(name: str) -> str:
    """Return the name of a GPU that is not there, so that nobody takes it for a real one."""
    return _("%(name)s (simulated)") % {"name": name}


def reason(code: str, stored: str) -> str:
    """Return why something happened, in the reader's language as far as we can.

    The stored sentence is English and has the particulars; a reader of another language gets the translated sentence
    for the code, or the stored one where the code is not known.
    """
    known = REASONS.get(code)
    if known is None or (stored and (get_language() or "en").startswith("en")):
        return stored
    return str(known)


def within_sentence(name: str) -> str:
    """Return a state's name as it stands inside a sentence: small in English, unchanged where case has no meaning."""
    return name[:1].lower() + name[1:]


# --- why a queued job does not start --------------------------------------------------------------------------------
# The codes are those of jobs/scheduling.py. Its own sentences name every Space that holds a GPU; these are for readers
# who may not know of all of them, so whoever calls passes the names that may be said.

WORKER_REFUSALS: Mapping[str, _StrPromise] = {
    "would_fit": gettext_lazy("%(worker)s can take it now."),
    "other_worker_named": gettext_lazy("An operator named another worker for it."),
    "worker_revoked": gettext_lazy("Revoked."),
    "cpu_runs_locally": gettext_lazy("Takes GPU jobs only; CPU Spaces run on local workers."),
    "no_gpu": gettext_lazy("Has no GPU."),
    "no_gpu_jobs": gettext_lazy("Takes no GPU jobs."),
    "no_cpu_jobs": gettext_lazy("Takes no CPU jobs."),
    "feature_missing": gettext_lazy("Does not offer %(missing)s."),
    "cuda_too_old": gettext_lazy("Its driver has CUDA %(has)s, %(needed)s is needed."),
    "worker_offline": gettext_lazy("Offline: not heard from."),
    "gpu_workers_disabled": gettext_lazy("GPU workers are switched off on this server."),
    "worker_disabled": gettext_lazy("Disabled: takes no jobs."),
    "worker_draining": gettext_lazy("Draining: takes no new jobs."),
    "worker_paused": gettext_lazy("Takes no jobs for the moment."),
    "gpu_jobs_paused": gettext_lazy("Takes no GPU jobs now: its owner uses a GPU."),
    "reports_refused": gettext_lazy("Its reports are refused as invalid, so it gets no jobs."),
    "gateway_unreachable": gettext_lazy("Its gateway cannot be reached from here, so nobody could open the app."),
    "worker_full": gettext_lazy("Runs as many %(what)s jobs as it may."),
    "kept_for_older": gettext_lazy("Keeps its GPUs for %(space)s, which has waited for %(time)s."),
    "too_few_gpus": gettext_lazy("Has %(suitable)d suitable GPUs, %(needed)d are needed."),
    "gpus_busy": gettext_lazy("No GPU is free enough."),
    "not_now": gettext_lazy("Cannot take it now."),  # for a code that is not known here
}

GPU_REFUSALS: Mapping[str, _StrPromise] = {
    "gpu_mig": gettext_lazy("Split into MIG instances: each of them is a GPU of its own here."),
    "gpu_too_small": gettext_lazy("Has %(total)s, %(needed)s are needed."),
    "gpu_simulated": gettext_lazy("Simulated, and this server takes real GPUs only."),
    "gpu_gone": gettext_lazy("The driver does not list it any more."),
    "gpu_unhealthy": gettext_lazy("Does not answer."),
    "gpu_on_hold": gettext_lazy("Given to a container on hold, of a lease that nobody here knows."),
    "gpu_reserved": gettext_lazy("Reserved for %(holders)s."),
    "gpu_vram_reserved": gettext_lazy(
        "%(available)s of %(total)s available, %(needed)s are needed; %(reserved)s reserved for %(holders)s."
    ),
    "gpu_unmeasured": gettext_lazy(
        "Given as a whole, since what each job uses cannot be measured there: reserved for %(holders)s."
    ),
    "gpu_size_unknown": gettext_lazy("Its driver does not tell how much memory it has."),
    "gpu_elsewhere": gettext_lazy("%(other)s has reported the same GPU since."),
    "gpu_recovering": gettext_lazy("Failed a moment ago; used again after %(missing)d more good reports."),
    "gpu_free_alone": gettext_lazy("Free, but %(needed)d GPUs are needed at once."),
    "not_now": gettext_lazy("Not to be had now."),  # for a code that is not known here
    "gpu_foreign_use": gettext_lazy("%(free)s of %(total)s free, %(foreign)s used by processes that are not ours."),
}

# The standing of a row in two words, where there is one.
STANDINGS: Mapping[str, _StrPromise] = {
    "would_fit": gettext_lazy("Free"),
    "worker_offline": gettext_lazy("Offline"),
    "worker_disabled": gettext_lazy("Disabled"),
    "worker_draining": gettext_lazy("Draining"),
    "worker_paused": gettext_lazy("Paused"),
    "gpu_jobs_paused": gettext_lazy("Paused"),
    "reports_refused": gettext_lazy("Reports refused"),
    "gateway_unreachable": gettext_lazy("Not reachable"),
    "worker_full": gettext_lazy("Full"),
    "worker_revoked": gettext_lazy("Revoked"),
    "gpu_workers_disabled": gettext_lazy("Switched off"),
    "kept_for_older": gettext_lazy("Kept"),
    "gpu_on_hold": gettext_lazy("On hold"),
    "gpu_reserved": gettext_lazy("Reserved"),
    "gpu_vram_reserved": gettext_lazy("Reserved"),
    "gpu_unmeasured": gettext_lazy("Reserved"),
    "gpu_size_unknown": gettext_lazy("Size unknown"),
    "gpu_elsewhere": gettext_lazy("Elsewhere"),
    "gpu_recovering": gettext_lazy("Recovering"),
    "gpu_free_alone": gettext_lazy("Free"),
    "gpu_foreign_use": gettext_lazy("In use"),
    "gpu_gone": gettext_lazy("Gone"),
    "gpu_unhealthy": gettext_lazy("Faulty"),
    "gpu_too_small": gettext_lazy("Too small"),
}

# Why the nearest worker does not take it, in as few words as fit on a card. "%(worker)s" is that worker.
SHORT: Mapping[str, _StrPromise] = {
    "predecessor_stopping": gettext_lazy("waits for the run before it"),
    "last_chance": gettext_lazy("its last attempt expired"),
    "no_worker": gettext_lazy("no worker yet"),
    "about_to_start": gettext_lazy("about to start"),
    "no_compatible_worker": gettext_lazy("no worker fits"),
    "named_worker_waits": gettext_lazy("waits for %(worker)s"),
    "named_worker_revoked": gettext_lazy("%(worker)s was revoked"),
    "named_worker_unfit": gettext_lazy("%(worker)s does not fit"),
    "gpus_busy": gettext_lazy("no GPU is free enough"),
    "gpus_busy_for_size": gettext_lazy("no GPU has %(memory)s free"),
    "worker_full": gettext_lazy("%(worker)s is full"),
    "worker_offline": gettext_lazy("%(worker)s is offline"),
    "worker_disabled": gettext_lazy("%(worker)s is disabled"),
    "worker_draining": gettext_lazy("%(worker)s is draining"),
    "worker_paused": gettext_lazy("%(worker)s is paused"),
    "gpu_jobs_paused": gettext_lazy("the owner of %(worker)s uses its GPU"),
    "reports_refused": gettext_lazy("reports of %(worker)s are refused"),
    "gateway_unreachable": gettext_lazy("%(worker)s is not reachable"),
    "gpu_workers_disabled": gettext_lazy("GPU workers are switched off"),
    "kept_for_older": gettext_lazy("an older one goes first"),
}

# The whole of it in one sentence, by the codes of jobs/waiting.py.
WAITING: Mapping[str, _StrPromise] = {
    "predecessor_stopping": gettext_lazy("It starts as soon as the run before it has stopped."),
    "last_chance": gettext_lazy("Its last attempt expired; its worker may still come back with it."),
    "no_worker": gettext_lazy("No worker has been enrolled yet, so nothing can take it."),
    "about_to_start": gettext_lazy("A worker can take it now; it starts with that worker's next question."),
    "no_compatible_worker": gettext_lazy("No worker can ever take it as it is."),
    "named_worker_waits": gettext_lazy(
        "An operator placed it on one worker, and it waits for that one. It starts by itself as soon as it can."
    ),
    "named_worker_revoked": gettext_lazy(
        "An operator placed it on one worker, which was revoked. It waits until an operator places it elsewhere."
    ),
    "named_worker_unfit": gettext_lazy(
        "An operator placed it on one worker, which can never take it as it is. It waits until that is changed."
    ),
    "gpu_workers_disabled": gettext_lazy(
        "GPU workers are switched off on this server. It starts by itself when they are switched on again."
    ),
    "kept_for_older": gettext_lazy(
        "The GPUs that it could have are kept for a Space that has waited longer. It starts by itself after that one."
    ),
}

WAITS = gettext_lazy("No worker can take it now. It starts by itself as soon as one can; you can close this page.")


def worker_refusal(code: str, **facts: object) -> str | None:
    """Return why a worker does not take a job, without its name; None for a code that is not known here."""
    return _filled(WORKER_REFUSALS, code, facts)


def gpu_refusal(code: str, **facts: object) -> str | None:
    """Return why a GPU does not do, without its name; None for a code that is not known here."""
    return _filled(GPU_REFUSALS, code, facts)


def standing(code: str) -> str:
    """Return the standing that a refusal shows, in a word or two; empty where none fits."""
    return str(STANDINGS.get(code, ""))


def waiting(code: str) -> str:
    """Return why a job waits, in one sentence that names nobody."""
    return str(WAITING.get(code, WAITS))


def waiting_short(code: str, *, worker: str = "", needed_mib: int | None = None) -> str:
    """Return why a job waits, in a few words for a card; empty for a code that is not known here."""
    if code == "gpus_busy" and needed_mib:
        return _filled(SHORT, "gpus_busy_for_size", {"memory": needed_memory(needed_mib)}) or ""
    return _filled(SHORT, code, {"worker": worker}) or ""


def holders(names: list[str], *, hidden: int) -> str:
    """Return who holds a GPU: the Spaces that the reader may know of, and a word for those he may not."""
    said = list(names)
    if hidden:
        said.append(ngettext("a Space you cannot see", "%(count)d Spaces you cannot see", hidden) % {"count": hidden})
    return ", ".join(said)


def _filled(sentences: Mapping[str, _StrPromise], code: str, facts: Mapping[str, object]) -> str | None:
    sentence = sentences.get(code)
    try:
        return None if sentence is None else str(sentence) % facts
    except (KeyError, TypeError):  # the one who judged did not send a figure of the sentence: the stored one will do
        return None


# --- what to do about a failure ------------------------------------------------------------------------------------

REMEDIES: Mapping[str, _StrPromise] = {
    "no_dockerfile": gettext_lazy("Add a Dockerfile that starts a web server on port 7860, push it, and start again."),
    "dockerfile_unusable": gettext_lazy("Put the Dockerfile itself in its place, push it, and start again."),
    "build_failed": gettext_lazy(
        "Mend what the marked lines complain about, push, and start again: the newest commit is built."
    ),
    "no_base_image": gettext_lazy(
        "Check the name after FROM in the Dockerfile; ask your operator whether the worker reaches that registry."
    ),
    "image_not_lent": gettext_lazy(
        "Build on an image of a registry, or ask the worker's owner to lend that one (LENT_IMAGES)."
    ),
    "syntax_refused": gettext_lazy("Remove the line # syntax=, or name docker/dockerfile there."),
    "syntax_unavailable": gettext_lazy(
        "Remove that line, or ask your operator whether the worker reaches that registry."
    ),
    "syntax_too_new": gettext_lazy("Write it for an older Docker, or ask your operator for a newer one."),
    "readme_unusable": gettext_lazy("Mend the README as the sentence says, push it, and start again."),
    "packages_unusable": gettext_lazy("Write one package per line in packages.txt, push it, and start again."),
    "no_app_file": gettext_lazy("Name the file to start as app_file in the README, push it, and start again."),
    "commit_gone": gettext_lazy("It was removed by a forced push. Start builds the newest commit there is."),
    "source_failed": gettext_lazy("The system log says what git said. Start again; ask your operator when it stays."),
    "git_lfs_missing": gettext_lazy("Ask your operator to install git-lfs on the worker, then start again."),
    "lfs_object_missing": gettext_lazy("Push the objects with git lfs push --all, then start again."),
    "submodule_refused": gettext_lazy(
        "Let it be a repository of this server, by a relative address, that everybody may read who may push here."
    ),
    "source_too_large": gettext_lazy(
        "Take out what the app does not need, or ask your operator for a higher limit on the worker."
    ),
    "disk_full": gettext_lazy("Ask your operator to make room on the worker's disk, then start again."),
    "no_buildkit": gettext_lazy("Ask your operator to install BuildKit (docker buildx) on the worker."),
    "engine_refused": gettext_lazy(
        "Ask your operator to look at the container engine of the worker, then start again."
    ),
    "start_failed": gettext_lazy("The system log says why the start was refused. Mend that, push, and start again."),
    "exited_before_ready": gettext_lazy(
        "Look at the last lines of its log: the app ended before it listened on the port that PORT names."
    ),
    "process_lost": gettext_lazy("The machine was restarted, or somebody ended the process. Start again."),
    "build_timeout": gettext_lazy("Make the build shorter, or ask your operator for a longer limit."),
    "build_out_of_memory": gettext_lazy(
        "Let the build do less at once (fewer parallel compilers, ready-made packages), or ask your operator for more."
    ),
    "build_too_many_processes": gettext_lazy(
        "Look for a step that starts processes without end, or ask your operator for a higher limit."
    ),
    "disk_limit": gettext_lazy(
        "Its files are kept: let it write less or remove what it does not need, or ask your operator for more room."
    ),
    "time_limit": gettext_lazy(
        "Make it shorter, or ask your operator for a longer limit. What it left in its results directory is kept."
    ),
    "startup_timeout": gettext_lazy(
        "Let the app listen on 0.0.0.0 and the port that PORT names (7860 unless the README says otherwise)."
    ),
    "oom_killed": gettext_lazy("Let the app use less memory, or ask your operator for a higher limit."),
    "batch_exited": gettext_lazy("Look at the last lines of its log: a batch job succeeds when it exits with code 0."),
    "exited": gettext_lazy(
        "A Space must go on running. Look at the last lines of its log for the reason why it ended."
    ),
    "disk_floor": gettext_lazy("Ask your operator to make room on the worker's disk, then start again."),
    "too_many_attempts": gettext_lazy("Ask your operator to look at the workers, then start again."),
    "needs_cuda": gettext_lazy("Build on an image for an older CUDA, or ask your operator for a newer driver."),
    "container_lost": gettext_lazy("Somebody or something removed the container on the worker. Start again."),
}


def remedy(code: str) -> str:
    """Return what an owner can do about a failure; a general answer where the code is not known."""
    return str(REMEDIES.get(code, gettext_lazy("Look at the log, mend the cause, push, and start again.")))
