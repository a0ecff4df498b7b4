"""Before the first claim: what did a former process of this worker leave, and what of it goes on?"""

from __future__ import annotations

import logging
import signal
from collections.abc import Sequence
from pathlib import Path

from gpu_worker.deep_trees import remove_tree
from gpu_worker.executor import Found
from gpu_worker.journal import JobRecord, Journal
from gpu_worker.reporting import FINAL_KINDS

logger = logging.getLogger(__name__)

COMING = ("leased", "building", "starting")


def take_inventory(journal: Journal, found: Sequence[Found], work_dir: Path) -> list[JobRecord]:
    """The records of jobs to go on with; everything else of the former process is cleared away.

    Truth about what runs is *found*, the engine's own labels; the journal adds progress. A job that had not started
    its app cannot go on (its secrets and its read token died with the process): it is forgotten, and the next
    register without its lease lets the server queue it again at once, uncounted.
    """
    present = {one.facts.lease: one for one in found}
    adopted = []
    for record in journal.load_all(set_aside=True):
        lease = record.facts.lease
        _end_child(record)
        if lease not in present and record.phase in COMING:
            logger.info(
                "unfinished job dropped", extra={"action": "job_dropped", "lease": lease, "phase": record.phase}
            )
            journal.drop(lease)
            continue
        if lease in present and record.phase in COMING:
            record.phase = "starting"  # the former process died between create and the journal's next line
        if record.phase == "exited" and record.last_event not in FINAL_KINDS:
            record.phase = "running"  # the former process died between the app's end and its report
        if record.phase == "running" and (lease not in present or present[lease].status == "exited"):
            record.found_ended = True  # "running" would make the server say that the app never stopped
        adopted.append(record)
        present.pop(lease, None)
    adopted += [record_from_labels(one) for one in present.values()]
    remove_tree(work_dir)
    return adopted


def record_from_labels(one: Found) -> JobRecord:
    """A container without a journal entry (a lost data directory): the server tells what it knows of it."""
    logger.warning(
        "container adopted without a journal entry",
        extra={"action": "adopted_from_labels", "lease": one.facts.lease, "container": one.reference},
    )
    return JobRecord(one.facts, phase="starting", image_id=one.image_id)


def _end_child(record: JobRecord) -> None:
    """A build or installation that outlived its worker: nobody reads its output any more."""
    if record.child is not None:
        record.child.signal_group(signal.SIGKILL)
        record.child = None
