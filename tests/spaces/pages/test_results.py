"""What a batch job left stands on the Space's pages and in the owners' API, for who may read the repository."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings

from jobs import artifacts
from jobs.artifact_store import Incoming
from jobs.models import Job
from tests.spaces.pages import runs
from tests.spaces.repositories import make_space
from workers.models import Worker

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _directory(settings: Settings, tmp_path: Path) -> None:
    settings.OPENFACE_ARTIFACTS_DIR = tmp_path / "artifacts"
    settings.OPENFACE_RUNTIME_ORIGIN = "http://run.example.org"
    settings.OPENFACE_ARTIFACT_KEEP_DAYS = 30


def deliver(attempt: runs.Attempt, path: str, content: bytes) -> None:
    incoming = Incoming()
    incoming.write(content)
    artifacts.keep(attempt.lease, path, incoming, sha256=hashlib.sha256(content).hexdigest())


def run_of(client: Client, worker: Worker, files: dict[str, bytes], *, code: int = 0) -> Job:
    """One run of alice/bench from start to end, with these results."""
    assert client.post("/spaces/alice/bench/start").status_code == 303
    attempt = runs.claim(worker).to_running()
    for path, content in files.items():
        deliver(attempt, path, content)
    attempt.report("exited", code=code, oom_killed=False)
    return Job.objects.get(pk=attempt.job.pk)


@pytest.fixture
def bench(db: None) -> None:
    make_space("alice/bench", topics=("benchmark",))


def page(client: Client, path: str = "") -> str:
    answer = client.get(f"/spaces/alice/bench/{path}")
    assert answer.status_code == 200
    return str(answer.content.decode())


def test_a_finished_run_shows_its_files_with_size_date_and_where_to_fetch_them(
    bench: None, alice: Client, worker: Worker
) -> None:
    job = run_of(alice, worker, {"plots/図 1.png": b"x" * 3400, "score.txt": b"42"})

    text = page(alice)

    assert "It is done" in text
    assert 'href="http://run.example.org/results/alice/bench/' in text
    assert f"/{job.pk}/plots/%E5%9B%B3%201.png" in text
    assert "plots/図 1.png" in text
    assert "3.4 kB" in text
    assert "2 files, 3.4 kB" in text
    assert "kept until" in text


def test_a_failed_run_shows_what_it_left_too(bench: None, alice: Client, worker: Worker) -> None:
    run_of(alice, worker, {"partial.csv": b"1,2"}, code=3)

    assert "partial.csv" in page(alice)


def test_what_was_left_out_is_told_with_its_reason(bench: None, alice: Client, worker: Worker) -> None:
    alice.post("/spaces/alice/bench/start")
    attempt = runs.claim(worker).to_running()
    artifacts.leave_out(attempt.lease, [("checkpoint.bin", 9_000_000_000, "file_too_large"), ("odd", None, "bad_name")])
    attempt.report("exited", code=0, oom_killed=False)

    text = page(alice)

    assert "checkpoint.bin (9.0 GB): larger than one result may be" in text
    assert "odd: its name cannot be kept" in text


def test_a_name_that_looks_like_another_is_shown_with_what_it_hides(bench: None, alice: Client, worker: Worker) -> None:
    run_of(alice, worker, {"a\u202egnp.exe": b"x"})

    for text in (page(alice), page(alice, "results/")):
        assert "a\\u202egnp.exe" in text
        assert "\u202e" not in text


def test_the_tab_shows_every_run_and_the_chosen_ones_files(bench: None, alice: Client, worker: Worker) -> None:
    first = run_of(alice, worker, {"first.txt": b"1"})
    run_of(alice, worker, {"second.txt": b"2"})
    run_of(alice, worker, {})

    newest, older = page(alice, "results/"), page(alice, f"results/?job={first.pk}")

    assert "second.txt" in newest and "first.txt" not in newest
    assert "first.txt" in older and "second.txt" not in older
    assert newest.count("?job=") >= 3
    assert 'aria-current="page">Results</a>' in newest


def test_long_lists_are_cut_on_the_stage_and_whole_on_the_tab(bench: None, alice: Client, worker: Worker) -> None:
    run_of(alice, worker, {f"f{number:02}": b"" for number in range(25)})

    assert "and 15 more files" in page(alice)
    assert "f24" in page(alice, "results/")


def test_names_that_would_deceive_are_shown_with_escapes(bench: None, alice: Client, worker: Worker) -> None:
    run_of(alice, worker, {"\u202egnp.exe": b"1", "<b>bold": b"2"})

    text = page(alice)

    assert r"\u202egnp.exe" in text
    assert "&lt;b&gt;bold" in text and "<b>bold" not in text


def test_it_speaks_japanese(bench: None, alice: Client, worker: Worker) -> None:
    run_of(alice, worker, {"a": b"1"})

    text = str(alice.get("/spaces/alice/bench/", headers={"Accept-Language": "ja"}).content.decode())

    assert "結果" in text and "1 個のファイル" in text and "まで保存" in text


def test_a_space_that_serves_has_no_results(alice: Client, worker: Worker) -> None:
    make_space("alice/app")
    alice.post("/spaces/alice/app/start")

    assert "/results/" not in alice.get("/spaces/alice/app/").content.decode()
    assert "No results" in alice.get("/spaces/alice/app/results/").content.decode()


class TestApi:
    """For programs."""

    def ask(self, client: Client, query: str = "", name: str = "alice/bench") -> tuple[int, dict[str, Any]]:
        answer = client.get(f"/api/v1/spaces/{name}/results{query}")
        return answer.status_code, answer.json()

    def test_the_newest_results_are_listed_whole(self, bench: None, alice: Client, worker: Worker) -> None:
        job = run_of(alice, worker, {f"f{number:02}": b"abc" for number in range(25)})

        status, body = self.ask(alice)

        results = body["results"]
        assert (status, results["job"], results["state"], results["exit_code"]) == (200, str(job.pk), "completed", 0)
        assert (len(results["files"]), results["size"]) == (25, 75)
        assert results["files"][0] == {
            "path": "f00",
            "size": 3,
            "sha256": hashlib.sha256(b"abc").hexdigest(),
            "url": f"http://run.example.org/results/alice/bench/{job.pk}/f00",
        }
        assert results["kept_until"] > results["finished_at"]

    def test_a_run_can_be_named_and_another_spaces_cannot(self, bench: None, alice: Client, worker: Worker) -> None:
        first = run_of(alice, worker, {"first": b"1"})
        run_of(alice, worker, {"second": b"2"})
        make_space("alice/other", topics=("benchmark",))

        assert [file["path"] for file in self.ask(alice, f"?job={first.pk}")[1]["results"]["files"]] == ["first"]
        for query, name in ((f"?job={first.pk}", "alice/other"), ("?job=x", "alice/bench")):
            assert self.ask(alice, query, name) == (404, {"code": "not_found", "detail": "There is nothing here."})

    def test_without_a_run_there_are_none(self, bench: None, alice: Client) -> None:
        assert self.ask(alice) == (200, {"space": "alice/bench", "results": None})

    def test_who_may_not_read_the_repository_learns_nothing(
        self, alice: Client, carol: Client, passer_by: Client, worker: Worker
    ) -> None:
        make_space("alice/bench", topics=("benchmark",), visibility="private")
        job = run_of(alice, worker, {"secret": b"1"})

        for client in (carol, passer_by):
            for query in ("", f"?job={job.pk}"):
                assert self.ask(client, query)[0] == 404
            assert client.get("/spaces/alice/bench/results/").status_code in (302, 404)
        assert self.ask(alice)[0] == 200
