"""No secret shows in a log, however the text is cut and whatever usual form the secret takes."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_worker.masking import MASK, Masker

SECRET = 'p&ss "wörd"/+7\\n'


def masked(pieces: list[str], secrets: list[str]) -> str:
    masker = Masker(secrets)
    return "".join([*(masker.feed(piece) for piece in pieces), masker.end()])


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        quote(SECRET, safe=""),
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        base64.b64encode(SECRET.encode()).decode().rstrip("="),
    ],
)
def test_each_usual_form_is_masked(form: str) -> None:
    assert masked([f"before {form} after"], [SECRET]) in (f"before {MASK} after", f"before {MASK}{form[-1]} after")


@pytest.mark.parametrize("before", ["", "a", "ab", "lease:"])
def test_base64_is_masked_at_every_alignment(before: str) -> None:
    text = base64.b64encode(f"{before}{'0123456789abcdef'}tail".encode()).decode()

    shown = masked([text], ["0123456789abcdef"])

    hidden = len(text) - len(shown) + len(MASK)
    assert hidden >= 20  # of the 22 characters that carry a bit of the secret, two carry neighbours' too


@given(st.integers(0, 40), st.integers(0, 40))
def test_a_border_inside_a_secret_hides_nothing_less(first: int, second: int) -> None:
    text = "x 0123456789 y 0123456789ab z 01234"
    cuts = sorted((min(first, len(text)), min(second, len(text))))
    pieces = [text[: cuts[0]], text[cuts[0] : cuts[1]], text[cuts[1] :]]

    assert masked(pieces, ["0123456789", "0123456789ab"]) == f"x {MASK} y {MASK} z 01234"


@given(
    st.lists(st.text("abc", min_size=4, max_size=7), min_size=1, max_size=3),
    st.text("abc", max_size=60),
    st.data(),
)
def test_pieces_are_masked_as_the_whole_is(secrets: list[str], text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]

    assert masked(pieces, secrets) == masked([text], secrets)


def test_each_line_of_a_long_key_is_masked() -> None:
    key = "-----BEGIN KEY-----\nabcdefghijklmnop\nqrstuvwxyz012345\n-----END KEY-----\n"

    assert "qrstuvwxyz012345" not in masked(["#5 0.1 qrstuvwxyz012345\n"], [key])


@pytest.mark.parametrize("pasted", ["  {}", "{} ", "{}\n", "\t{}\r\n"])
def test_what_was_pasted_with_the_secret_hides_nothing_less(pasted: str) -> None:
    secret = "hf_0123456789abcdef"

    assert masked([f"token={secret}!"], [pasted.format(secret)]) == f"token={MASK}!"


def test_short_values_are_left_alone() -> None:
    assert masked(["1 on 0"], ["1", "on"]) == "1 on 0"


def test_text_without_secrets_is_not_held_back() -> None:
    assert Masker([]).feed("abc") == "abc"
    assert Masker(["xyz1"]).feed("abc") == "abc"
