"""What the database does for a claim does not grow with the line: it walks one index, a few rows of each class."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from jobs import patience
from jobs.lifecycle import picking
from jobs.models import Job
from tests.factories import JobFactory, RequirementFactory

pytestmark = pytest.mark.django_db

CLASSES = 68
LONG, SHORT = 20_400, 680
AT_ONCE = picking.HEADS[0]
INDEX, BATCH_INDEX, BY_KEY = "job_queue_by_class", "job_batch_queue_by_class", "jobs_job_pkey"
_FILL = """
    WITH spaces AS (
        INSERT INTO spaces_space
        SELECT made.* FROM spaces_space pattern, generate_series(1, %(length)s) n, LATERAL jsonb_populate_record(
            pattern, jsonb_build_object('id', 100000 + n, 'name', 's' || n, 'repository_id', 's' || n)) made
        WHERE pattern.id = %(space)s RETURNING id
    )
    INSERT INTO jobs_job
    SELECT made.* FROM jobs_job pattern, generate_series(1, %(length)s) n, LATERAL jsonb_populate_record(
        pattern, jsonb_build_object('id', gen_random_uuid(), 'seq', 100000 + n, 'space_id', 100000 + n,
                                    'requirement_id', (%(classes)s::bigint[])[1 + n %% %(number)s])) made
    WHERE pattern.id = %(job)s
"""


def fill(length: int) -> list[int]:
    """A line of this length, spread evenly over the classes; returns their ids."""
    pattern = JobFactory.create()
    classes = [RequirementFactory.create(kind="gpu", gpu_count=1 + n).pk for n in range(CLASSES)]
    facts: dict[str, Any] = {
        "length": length,
        "space": pattern.space_id,
        "job": pattern.pk,
        "classes": classes,
        "number": CLASSES,
    }
    with connection.cursor() as cursor:
        cursor.execute(_FILL, facts)
    Job.objects.filter(pk=pattern.pk).update(state="completed")
    return classes


def plan_of(sql: str, parameters: list[Any]) -> dict[str, Any]:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF) {sql}", parameters)
        (found,) = cursor.fetchone()
    plans = json.loads(found) if isinstance(found, str) else found
    plan: dict[str, Any] = plans[0]["Plan"]
    return plan


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def heads_plan() -> dict[str, Any]:
    return plan_of(patience._HEADS, [patience.MAX_ATTEMPTS])


def oldest_plan(classes: list[int], *, only_batch: bool = False) -> dict[str, Any]:
    ends = [picking._END_OF_LINE] * len(classes)
    limits = [*[patience.MAX_ATTEMPTS, AT_ONCE] * 2, AT_ONCE, patience.MAX_ATTEMPTS]
    takeable = [classes, [only_batch] * len(classes), ends]
    return plan_of(picking.OLDEST_UNLOCKED, [*takeable, *limits, uuid.uuid4(), *takeable])


def rows_read(plan: dict[str, Any]) -> int:
    """Rows that came out of the tables, or were looked at and thrown away there, over all loops."""
    return sum(
        # The database tells the mean of all loops, rounded.
        round((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])
        for node in nodes(plan)
        if node.get("Relation Name") == "jobs_job"
    )


def ways_into_the_table(plan: dict[str, Any]) -> set[str]:
    """The indexes by which jobs are found, or how else they are."""
    found = set()
    for node in nodes(plan):
        if not node["Actual Loops"]:
            continue  # the half of the query that does not apply
        if node["Node Type"] == "Bitmap Index Scan":
            found.add(node["Index Name"])
        elif node.get("Relation Name") == "jobs_job" and node["Node Type"] != "Bitmap Heap Scan":
            found.add(node.get("Index Name", node["Node Type"]))
    return found


@pytest.mark.parametrize("analyzed", [False, True], ids=["without statistics", "with statistics"])
def test_both_queries_walk_the_index_of_the_class(analyzed: bool) -> None:
    classes = fill(LONG)
    if analyzed:
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE jobs_job, jobs_requirement")

    assert ways_into_the_table(heads_plan()) == {INDEX}
    for some in (classes[:1], classes):
        assert ways_into_the_table(oldest_plan(some)) == {INDEX, BY_KEY}
        assert ways_into_the_table(oldest_plan(some, only_batch=True)) == {BATCH_INDEX, BY_KEY}


@pytest.mark.parametrize("length", [SHORT, LONG])
def test_a_claim_reads_a_few_rows_of_each_class_however_long_the_line_is(length: int) -> None:
    classes = fill(length)

    assert rows_read(heads_plan()) == CLASSES
    assert rows_read(oldest_plan(classes[:1])) <= 2 * AT_ONCE
    assert rows_read(oldest_plan(classes)) <= (CLASSES + 1) * AT_ONCE


def test_a_worker_that_takes_batch_jobs_only_passes_the_services_before_them_unread() -> None:
    classes = fill(LONG)
    youngest = Job.objects.filter(requirement=classes[0], state="queued").order_by("-seq")[:1]
    Job.objects.filter(pk__in=[job.pk for job in youngest]).update(mode="batch")

    assert rows_read(oldest_plan(classes, only_batch=True)) <= 2 * AT_ONCE


def test_no_other_index_orders_the_line() -> None:
    """A second partial index on the place in the line makes the planner choose it, and read the whole line.

    The one of the batch jobs is none: a query has to name the mode to be offered it.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'jobs_job'")
        partial = {name: definition for name, definition in cursor.fetchall() if "queued" in definition}

    ordered = {name for name, definition in partial.items() if "seq" in definition.partition("WHERE")[0]}
    assert ordered == {INDEX, BATCH_INDEX}
    assert "'batch'" in partial[BATCH_INDEX].partition("WHERE")[2]
