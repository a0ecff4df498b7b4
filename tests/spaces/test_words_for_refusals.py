"""Whatever the scheduler can answer has words for people, in every place where it is said."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import jobs
from spaces import words

ROOM = Path(jobs.__file__).parent
# Whole answers are made of these classes; their first argument is the code.
WHOLE, OF_A_GPU, SUMMED_UP = "Refusal", ("GpuRefusal", "Obstacle"), "Waiting"


def codes(*classes: str) -> Iterator[str]:
    for file in ROOM.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in classes:
                first = node.args[0] if node.args else None
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    yield first.value


def test_each_refusal_of_a_worker_has_a_sentence() -> None:
    found = set(codes(WHOLE))
    assert len(found) > 12, "the search itself has stopped to work"
    assert found - set(words.WORKER_REFUSALS) == set()


def test_each_refusal_of_a_gpu_has_a_sentence_and_a_standing() -> None:
    found = set(codes(*OF_A_GPU))
    assert len(found) > 6, "the search itself has stopped to work"
    assert found - set(words.GPU_REFUSALS) == set()
    # Two say all they have to say in their sentence.
    assert found - set(words.STANDINGS) <= {"gpu_mig", "gpu_simulated"}


def test_each_reason_for_waiting_has_few_words_for_a_card() -> None:
    never_alone = {
        "other_worker_named",
        "cpu_runs_locally",
        "no_gpu",
        "no_gpu_jobs",
        "no_cpu_jobs",
        "feature_missing",
        "cuda_too_old",
        "too_few_gpus",
    }
    never_alone |= {"worker_revoked"}  # these make "no worker fits", or are of the named worker
    assert (set(codes(SUMMED_UP)) | set(codes(WHOLE))) - never_alone - set(words.SHORT) == set()
