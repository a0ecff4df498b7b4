"""The steps of a build are what BuildKit's plain progress says, and nothing is guessed."""

from __future__ import annotations

from spaces.build_steps import current, read_steps

LOG = """#1 [internal] load build definition from Dockerfile
#1 DONE 0.0s
#4 [1/4] FROM docker.io/library/python:3.11-slim
#4 CACHED
#5 [stage-1 2/4] COPY requirements.txt .
#5 DONE 0.1s
#6 [3/4] RUN pip install -r requirements.txt
#6 1.204 Collecting gradio
"""


def test_steps_have_number_total_and_standing() -> None:
    steps = read_steps(LOG)
    assert [(step.number, step.total, step.standing) for step in steps] == [
        (1, 4, "cached"),
        (2, 4, "done"),
        (3, 4, "going"),
    ]
    assert steps[1].stage == "stage-1"
    assert steps[1].seconds == 0.1


def test_the_current_step_is_the_one_that_goes_on() -> None:
    step = current(read_steps(LOG))
    assert step is not None
    assert (step.number, step.command) == (3, "RUN pip install -r requirements.txt")


def test_a_failed_step_is_the_current_one_whatever_began_beside_it() -> None:
    steps = read_steps(LOG + "#7 [4/4] COPY . .\n#6 ERROR: process did not complete successfully\n")
    step = current(steps)
    assert step is not None
    assert (step.number, step.standing) == (3, "failed")


def test_a_log_without_steps_has_none() -> None:
    assert read_steps("Collecting gradio\nStep 1/4 : FROM python\n") == []
    assert current([]) is None


def test_numbers_that_nobody_meant_are_not_read() -> None:
    assert read_steps(f"#1 [{'9' * 5000}/4] FROM x\n#1 DONE {'9' * 5000}.0s\n#2 DONE 1.2.3s\n") == []


def test_a_long_command_is_cut_where_it_can_be_seen() -> None:
    (step,) = read_steps("#5 [1/1] RUN " + "x" * 200 + "\n")

    assert step.command.endswith("x…") and len(step.command) == 81
