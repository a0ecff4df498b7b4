"""Why something happened to a job, and what its owner can do about it: sentences for the stored reason codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.translation import get_language, gettext_lazy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django.utils.functional import _StrPromise

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
    "gateway_unreachable": gettext_lazy("It runs, but its machine cannot be reached from here to open it."),
    # reported by workers
    "host_rebooted": gettext_lazy("The machine was restarted; the same image starts again."),
    "engine_restarted": gettext_lazy("The container engine was restarted; the same image starts again."),
    "shutdown": gettext_lazy("The worker was shut down before it began to serve."),
    "gpu_gone": gettext_lazy("The GPU it was to use is gone."),
    "disk_floor": gettext_lazy("The worker's disk is too full."),
    "paused": gettext_lazy("The owner of the machine paused it, so it goes back to the line."),
    "needs_cuda": gettext_lazy("Its image needs a newer CUDA than the driver of the worker has."),
    "no_dockerfile": gettext_lazy("The repository has neither a Dockerfile nor an app_file."),
    "dockerfile_unusable": gettext_lazy("The repository's Dockerfile is none of its files, or not plain text."),
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
    "address_refused": gettext_lazy("The Dockerfile wants something from the worker's own machine."),
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
    "computing": gettext_lazy("It computes until it ends by itself."),
    "stopped": gettext_lazy("It was stopped."),
}


def reason(code: str, stored: str) -> str:
    """Return why something happened, in the reader's language as far as we can.

    The stored sentence is English and has the particulars; a reader of another language gets the translated sentence
    for the code, or the stored one where the code is not known.
    """
    known = REASONS.get(code)
    if known is None or (stored and (get_language() or "en").startswith("en")):
        return stored
    return str(known)


REMEDIES: Mapping[str, _StrPromise] = {
    "no_dockerfile": gettext_lazy("Add a Dockerfile that starts a web server on port 7860, push it, and start again."),
    "dockerfile_unusable": gettext_lazy("Mend the Dockerfile as the sentence says, push it, and start again."),
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
    "address_refused": gettext_lazy("Name a machine that others reach too, or put the file into the repository."),
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
