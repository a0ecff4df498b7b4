"""Why a queued job does not start, for readers who may not know of every Space that holds a GPU.

The codes are those of `jobs/scheduling.py` and `jobs/waiting.py`. Their own sentences name everybody; who calls here
passes the names that may be said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from jobs.vram import LEFT_BEHIND, ON_HOLD
from spaces.durations import needed_memory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django.utils.functional import _StrPromise

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


NOT_PROCESSES: Mapping[str, _StrPromise] = {
    ON_HOLD: gettext_lazy("a container on hold"),
    LEFT_BEHIND: gettext_lazy("an app that has ended"),
}


def process(pid: int, name: str) -> str:
    """Return who uses a GPU that is not ours, as operators read it. `pid` 0: it is no process that anybody listed."""
    if pid:
        return _("%(name)s, pid %(pid)d") % {"name": name, "pid": pid}
    return str(NOT_PROCESSES.get(name, name))


def _filled(sentences: Mapping[str, _StrPromise], code: str, facts: Mapping[str, object]) -> str | None:
    sentence = sentences.get(code)
    try:
        return None if sentence is None else str(sentence) % facts
    except (KeyError, TypeError):  # the one who judged did not send a figure of the sentence: the stored one will do
        return None
