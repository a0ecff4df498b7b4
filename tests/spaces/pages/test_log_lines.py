"""What a program prints becomes safe HTML that shows what a terminal would have shown last."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spaces.log_lines import as_item, cut_overwritten, last_version, render, split

ESC = "\x1b"


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("10%\r50%\r100%", "100%"),
        ("100%\r", "100%"),
        ("a line of Windows\r", "a line of Windows"),
        ("\r\r", ""),
        ("", ""),
    ],
)
def test_the_last_version_of_an_overwritten_line_wins(raw: str, shown: str) -> None:
    assert last_version(raw) == shown


def test_a_hundred_thousand_progress_updates_are_one_line() -> None:
    raw = "\r".join(f"{number}/100000" for number in range(100_001))
    assert render(raw).text == "100000/100000"


@pytest.mark.parametrize(
    ("raw", "html"),
    [
        (f"{ESC}[31mred{ESC}[0m plain", '<span class="sgr-red">red</span> plain'),
        (f"{ESC}[1;32mbold green{ESC}[39m bold", '<span class="sgr-bold sgr-green">bold green</span>'),
        (f"{ESC}[38;5;196mof many{ESC}[m", "of many"),
        (f"{ESC}[38;5;1mred", '<span class="sgr-red">red</span>'),
        (f"{ESC}[48;2;1;2;3mno background", "no background"),
        (f"{ESC}[38;2;1;31;3mno true colour", "no true colour"),
        (f"{ESC}[9999999999999999999999mstill here", "still here"),
    ],
)
def test_colours_become_classes_and_nothing_else_does(raw: str, html: str) -> None:
    assert render(raw).html.startswith(html)


@pytest.mark.parametrize(
    "raw",
    [
        f"{ESC}[2Jcleared",
        f"{ESC}]8;;https://evil.example{ESC}\\cleared{ESC}]8;;{ESC}\\",
        f"{ESC}]0;a title\x07cleared",
        "cle\x00ar\x08ed",
        "\u202ecleared",
        f"cleared{ESC}",
        f"cleared{ESC}]52;c;AAAA",
        "\x9bcleared",
    ],
)
def test_every_other_sequence_is_dropped(raw: str) -> None:
    assert render(raw).text == "cleared"
    assert render(raw).html == "cleared"


def test_markup_is_shown_and_never_obeyed() -> None:
    line = render(f"{ESC}[31m<script>alert(1)</script>&\"'")
    assert "<script" not in line.html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;&quot;&#x27;" in line.html


@given(st.text(alphabet=st.sampled_from("ab<>&\"'\x1b[]0123456789;m\r\t\x07\\\x9b\u202e"), max_size=60))
def test_whatever_is_printed_only_our_own_spans_come_out(raw: str) -> None:
    html = as_item(render(raw))
    without_ours = re.sub(r'</?(?:li|span)(?: class="(?:hit|sgr-[a-z]+(?: sgr-[a-z]+)*)")?>', "", html)
    assert "<" not in without_ours
    assert ESC not in html


@pytest.mark.parametrize(
    ("raw", "trouble"),
    [
        ("ERROR: No matching distribution found", True),
        ("#7 4.913 ERROR: No matching distribution found", True),
        ("Traceback (most recent call last):", True),
        ("ModuleNotFoundError: No module named 'torch'", True),
        ("requests.exceptions.ConnectionError: refused", True),
        ("git: fatal: unable to read tree", True),
        ("0 errors, 0 warnings", False),
        ("Installing error-handler 1.0", False),
    ],
)
def test_lines_that_look_like_the_cause_are_marked(raw: str, trouble: bool) -> None:
    assert render(raw).trouble is trouble


def test_the_builders_own_time_stands_beside_its_line() -> None:
    line = render("#7 4.912 Collecting torch")
    assert (line.when, line.text) == ("4.9 s", "Collecting torch")


def test_a_text_is_complete_lines_and_the_one_being_written() -> None:
    assert split("one\ntwo\nthr") == (["one", "two"], "thr")
    assert split("one\n") == (["one"], "")


def test_what_a_progress_bar_has_overwritten_can_be_forgotten() -> None:
    assert cut_overwritten("10%\r20%\r30%") == ("10%\r20%\r", "30%")
    assert cut_overwritten("10%\r20%\r") == ("10%\r", "20%\r")
    assert cut_overwritten("no bar") == ("", "no bar")


def test_an_endless_line_is_cut() -> None:
    assert len(render("x" * 1_000_000).text) < 10_000
