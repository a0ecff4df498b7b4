"""Both sides refuse the same paths of results, or the worker would offer what the server never takes."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from gpu_worker.result_files import path_problem, path_to_show
from jobs.artifact_paths import problem_of

NAMES = st.lists(st.sampled_from(["a", "..", ".", "", "結果", "\\", "\n", "x" * 255, "x" * 256, "あ" * 86, "\u2028"]))


@given(st.one_of(st.text(), NAMES.map("/".join)))
@example("a/" * 511 + "b")
@example("a/" * 512 + "b")
@example("\x85")
def test_the_worker_judges_a_path_as_the_server_does(path: str) -> None:
    assert path_problem(path) == bool(problem_of(path))


@given(st.one_of(st.text(alphabet=st.characters()), NAMES.map("/".join)))
@example("🐙" * 2000)
@example("a\n/" * 500)
@example("x" * 59 + "\n/" + "y" * 139 + "/z")
def test_a_path_that_is_only_shown_is_one_that_the_server_can_keep(path: str) -> None:
    assert problem_of(path_to_show(path)) == ""
