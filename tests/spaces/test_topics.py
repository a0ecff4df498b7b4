"""Topics become a requirement; what they do not say is not guessed, and what contradicts is told."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.scheduling import RequirementSpec
from spaces.topics import is_runnable, plan

# The same examples in each run, and no verdict on speed: the machine is shared.
QUICK = settings(
    max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)

CPU = RequirementSpec(kind="cpu")
WHOLE_GPU = RequirementSpec(kind="gpu", gpu_count=1, exclusive=True)


@pytest.mark.parametrize(
    ("topics", "requirement"),
    [
        ([], CPU),
        (["space"], CPU),
        (["space", "cpu"], CPU),
        (["space", "gpu"], WHOLE_GPU),
        (["space", "local-gpu"], WHOLE_GPU),
        (["SPACE", " GPU "], WHOLE_GPU),
        (["space", "cuda"], RequirementSpec(kind="gpu", gpu_count=1, exclusive=True, features=("cuda",))),
        (
            ["space", "gpu", "nvidia", "cuda"],
            RequirementSpec(kind="gpu", gpu_count=1, exclusive=True, features=("cuda", "nvidia")),
        ),
        (["space", "gpu", "vram-12gb"], RequirementSpec(kind="gpu", gpu_count=1, vram_mib=11_444)),
        (["space", "vram-9000mib"], RequirementSpec(kind="gpu", gpu_count=1, vram_mib=9_000)),
        (["space", "gpus-2"], RequirementSpec(kind="gpu", gpu_count=2, exclusive=True)),
        (["space", "gpus-2", "vram-24gb"], RequirementSpec(kind="gpu", gpu_count=2, vram_mib=22_888)),
        (["space", "llm", "python", "gpu-poor", "vram-lots", "gpus-many", "vram--1gb", "vram-1.5gb"], CPU),
    ],
)
def test_topics_become_a_requirement(topics: list[str], requirement: RequirementSpec) -> None:
    found = plan(topics)

    assert found.requirement == requirement
    assert found.warnings == ()


@pytest.mark.parametrize(("gigabytes", "mib"), [(8, 7_629), (12, 11_444), (16, 15_258), (22, 20_980), (24, 22_888)])
def test_n_gb_is_a_card_that_is_sold_as_n_gb(gigabytes: int, mib: int) -> None:
    assert plan(["gpu", f"vram-{gigabytes}gb"]).requirement.vram_mib == mib


def test_an_rtx_3060_is_a_12_gb_card() -> None:
    needed = plan(["gpu", "vram-12gb"]).requirement.vram_mib

    assert needed is not None and needed <= 12_287


@pytest.mark.parametrize(
    ("topics", "kind", "mode"),
    [
        (["space"], "space", "service"),
        (["inference"], "inference", "service"),
        (["benchmark"], "benchmark", "batch"),
        ([], "space", "service"),
    ],
)
def test_the_kind_decides_whether_it_serves_or_ends(topics: list[str], kind: str, mode: str) -> None:
    found = plan(topics)

    assert (found.kind, found.mode) == (kind, mode)


@pytest.mark.parametrize(
    ("topics", "requirement", "sentence"),
    [
        (["cpu", "gpu"], WHOLE_GPU, "The topics cpu and gpu exclude each other: it waits for a GPU."),
        (["cpu", "cuda"], CPU, "The topic cpu says where it runs: cuda changes nothing there."),
        (["cpu", "vram-8gb"], CPU, "The topic cpu says where it runs: vram-… changes nothing there."),
        (["gpu", "vram-0gb"], WHOLE_GPU, "The topic vram-0gb is no size that a GPU can have: ignored."),
        (["gpu", "vram-9999999gb"], WHOLE_GPU, "The topic vram-9999999gb is no size that a GPU can have: ignored."),
        (["gpu", "gpus-0"], WHOLE_GPU, "The topic gpus-0 is no number of GPUs between 1 and 16: ignored."),
        (["gpu", "gpus-99"], WHOLE_GPU, "The topic gpus-99 is no number of GPUs between 1 and 16: ignored."),
        (
            ["vram-8gb", "vram-12gb"],
            RequirementSpec(kind="gpu", gpu_count=1, vram_mib=11_444),
            "There are several topics vram-…: the largest counts, 11444 MiB.",
        ),
    ],
)
def test_contradictions_are_settled_by_one_rule_and_told(
    topics: list[str], requirement: RequirementSpec, sentence: str
) -> None:
    found = plan(topics)

    assert found.requirement == requirement
    assert [str(warning) for warning in found.warnings] == [sentence]


def test_a_repository_of_two_kinds_is_run_as_the_first_and_told() -> None:
    found = plan(["benchmark", "space"])

    assert (found.kind, found.mode) == ("space", "service")
    assert [str(one) for one in found.warnings] == ["The topics space, benchmark exclude each other: it runs as space."]


@pytest.mark.parametrize(
    ("topics", "runnable"),
    [(["space"], True), (["Inference"], True), (["benchmark"], True), (["gpu"], False), ([], False)],
)
def test_only_three_topics_make_a_repository_something_to_run(topics: list[str], runnable: bool) -> None:
    assert is_runnable(topics) is runnable


@QUICK
@given(st.lists(st.text(max_size=12) | st.from_regex(r"(vram|gpus)-\d{1,9}(gb|mib)?", fullmatch=True), max_size=8))
def test_no_topics_whatsoever_ask_for_something_impossible(topics: list[str]) -> None:
    need = plan(topics).requirement

    assert (need.gpu_count >= 1) == (need.kind == "gpu")
    assert need.vram_mib is None or (need.kind == "gpu" and 0 < need.vram_mib <= 1024 * 1024)
