"""The journal between versions and processes: what a newer worker wrote is read, and who looks changes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpu_worker.journal import JobFacts, JobRecord, Journal
from gpu_worker.log_shipping import Mark
from gpu_worker.process_identity import ProcessIdentity
from gpu_worker.protocol import Event, Limits
from gpu_worker.self_report import SelfReport, SelfReportFile

FACTS = JobFacts(
    job="j", lease="l", attempt=1, kind="gpu", mode="serve", owner="alice", repo="app", repository_id="r",
    revision="c0ffee", port=7860, gpus=("GPU-1",), limits=Limits(memory_mib=64), secret_names=("TOKEN",),
)  # fmt: skip
RECORD = JobRecord(
    FACTS, phase="running", process=ProcessIdentity(7, 8, "boot"), child=ProcessIdentity(9, 10, "boot"),
    pending=[Event(1, "started", {"port": 1})], marks={"app": Mark(3, "there")},
)  # fmt: skip


def with_news(value: Any) -> Any:
    """*value* as a newer worker might write it: one field more in each object that has fields."""
    if isinstance(value, dict):
        return {**{name: with_news(one) for name, one in value.items()}, "of_tomorrow": {"a": 1}}
    return value


def test_what_a_newer_worker_wrote_is_read(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.save(RECORD)
    file = tmp_path / "jobs" / "l.json"
    content = with_news(json.loads(file.read_text()))
    del content["marks"]["of_tomorrow"]  # names of streams, not fields
    file.write_text(json.dumps(content))

    assert journal.load_all(set_aside=True) == [RECORD]
    assert file.exists()


def test_the_label_of_a_container_of_a_newer_worker_is_read() -> None:
    assert JobFacts.parse(json.dumps(with_news(json.loads(FACTS.dump())))) == FACTS


@pytest.mark.parametrize("text", ["[]", '{"limits": 1}', '{"limits": []}', "{", "null"])
def test_what_is_no_job_is_still_refused(text: str) -> None:
    with pytest.raises(ValueError):
        JobFacts.parse(text)


@pytest.mark.parametrize("damage", ["{", "[]", "{}", '{"facts": null}', '{"facts": []}', "\0"])
def test_a_damaged_entry_is_set_aside_by_the_worker_and_left_by_who_only_looks(tmp_path: Path, damage: str) -> None:
    journal = Journal(tmp_path)
    journal.save(RECORD)
    bad = tmp_path / "jobs" / "bad.json"
    bad.write_text(damage)

    assert journal.load_all() == [RECORD]
    assert bad.exists()
    assert journal.load_all(set_aside=True) == [RECORD]
    assert (bad.exists(), bad.with_suffix(".damaged").exists()) == (False, True)


def test_an_entry_that_goes_while_somebody_reads_is_none(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.save(RECORD)
    (tmp_path / "jobs" / "gone.json").symlink_to(tmp_path / "nowhere")  # listed, and not there when it is opened

    assert journal.load_all(set_aside=True) == [RECORD]


def test_what_a_newer_worker_says_of_itself_is_read(tmp_path: Path) -> None:
    report = SelfReport(
        pid=1, version="9", answers=True, problem=None, standing="open", gateway_url=None, gateway=None, paused=None,
        no_gpu_jobs=None,
    )  # fmt: skip
    SelfReportFile(tmp_path).write(report)
    file = tmp_path / "status.json"
    file.write_text(json.dumps(with_news(json.loads(file.read_text()))))

    assert SelfReportFile(tmp_path).read() == report
