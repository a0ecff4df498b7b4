"""A log line says what its sentence is about."""

from __future__ import annotations

import logging

import pytest

from openface.log_lines import Formatter


def line(sentence: str, **extra: object) -> str:
    record = logging.getLogger("openface").makeRecord(
        "openface", logging.WARNING, __file__, 1, sentence, (), None, extra=extra or None
    )
    return Formatter("%(levelname)s %(name)s: %(message)s").format(record)


def test_without_more_it_is_the_sentence():
    assert line("gateway failed") == "WARNING openface: gateway failed"


def test_what_it_is_about_follows():
    assert line("gateway failed", worker="gpu1", lease=7) == "WARNING openface: gateway failed worker=gpu1 lease=7"


@pytest.mark.parametrize(
    ("value", "shown"),
    [("no answer in time", '"no answer in time"'), ("", '""'), ("a\nWARNING x", '"a\\nWARNING x"'), ("a=b", '"a=b"')],
)
def test_a_value_makes_no_second_line_and_no_second_value(value: str, shown: str):
    assert line("gateway failed", reason=value) == f"WARNING openface: gateway failed reason={shown}"


def test_a_traceback_stays_where_it_was():
    try:
        raise ValueError("broken")
    except ValueError as error:
        record = logging.makeLogRecord({"msg": "it broke", "exc_info": (ValueError, error, error.__traceback__)})
    record.worker = "gpu1"

    lines = Formatter("%(message)s").format(record).splitlines()

    assert lines[0] == "it broke worker=gpu1"
    assert lines[-1] == "ValueError: broken"
