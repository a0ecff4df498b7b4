"""The watch on a running app's GPU: two answers running are a loss, one that cannot be had is none."""

from __future__ import annotations

import threading

from gpu_worker.errors import EngineSilent
from gpu_worker.gpu_watch import GpuWatch
from tests.gpu_worker.worker import eventually

SEEN, LOST, CANNOT = (0, b"GPU 0: A (UUID: GPU-1)"), (255, b"Failed to initialize NVML: Unknown Error"), (127, b"")


class Inside:
    """What is answered inside the container, in turn; the last answer stays."""

    def __init__(self, *answers: tuple[int | None, bytes] | Exception) -> None:
        self._answers = list(answers)
        self.asked = 0

    def __call__(self) -> tuple[int | None, bytes]:
        answer = self._answers[min(self.asked, len(self._answers) - 1)]
        self.asked += 1
        if isinstance(answer, Exception):
            raise answer
        return answer


def watched(inside: Inside, *, times: int) -> GpuWatch:
    watch = GpuWatch(inside, every_seconds=0.001)

    def asked() -> bool:
        watch.look()
        return inside.asked >= times

    eventually(asked, what="the questions")
    return watch


def test_two_lost_answers_running_are_a_loss() -> None:
    watch = watched(Inside(SEEN, LOST, LOST), times=3)

    eventually(lambda: watch.lost, what="the loss")


def test_one_lost_answer_among_others_is_none() -> None:
    watch = watched(Inside(LOST, SEEN, LOST, SEEN), times=6)

    assert not watch.lost


def test_a_gpu_that_is_back_is_lost_no_more() -> None:
    watch = watched(Inside(LOST, LOST, SEEN), times=4)

    eventually(lambda: not watch.lost, what="its return")


def test_an_image_that_cannot_answer_is_asked_once() -> None:
    inside = Inside(CANNOT)
    watch = watched(inside, times=1)
    for _ in range(100):
        watch.look()

    assert (inside.asked, watch.lost) == (1, False)


def test_an_engine_that_is_silent_says_nothing_of_the_gpu() -> None:
    watch = watched(Inside(EngineSilent("no answer"), LOST, EngineSilent("no answer")), times=5)

    assert not watch.lost


def test_a_question_that_hangs_delays_nobody_and_is_asked_once() -> None:
    over = threading.Event()
    asked = []

    def hangs() -> tuple[int | None, bytes]:
        asked.append(1)
        over.wait(30)
        return SEEN

    watch = GpuWatch(hangs, every_seconds=0.001)

    def begun() -> bool:
        watch.look()
        return bool(asked)

    eventually(begun, what="the question")
    for _ in range(100):
        watch.look()
    over.set()

    assert len(asked) == 1


def test_it_can_be_switched_off() -> None:
    inside = Inside(LOST)
    watch = GpuWatch(inside, every_seconds=0)
    for _ in range(100):
        watch.look()

    assert inside.asked == 0
