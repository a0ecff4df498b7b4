"""A README says what it can; what is wrong in it costs a sentence, never the Space."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spaces.front_matter import BLOCK_LIMIT, FrontMatter, parse

# The same examples in each run, and no verdict on speed: the machine is shared.
QUICK = settings(
    max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)


def block(*lines: str) -> str:
    return "---\n" + "\n".join(lines) + "\n---\n# Body\n"


def test_a_readme_written_for_hugging_face_is_understood() -> None:
    found = parse(
        block(
            "title: Octopus",
            "emoji: 🐙",
            "colorFrom: indigo",
            "colorTo: pink",
            "sdk: gradio",
            "sdk_version: 5.49.1",
            'python_version: "3.11"',
            "app_file: src/app.py",
            "app_port: 8080",
            "short_description: Eight arms",
            "startup_duration_timeout: 1h",
            "pinned: true",
            "license: mit",
            "models: [a/b, c/d]",
        )
    )

    assert found == FrontMatter(
        title="Octopus",
        emoji="🐙",
        color_from="indigo",
        color_to="pink",
        sdk="gradio",
        sdk_version="5.49.1",
        python_version="3.11",
        app_file="src/app.py",
        app_port=8080,
        short_description="Eight arms",
        startup_timeout_seconds=3600,
        body="# Body\n",
    )


def test_our_own_keys_are_understood() -> None:
    found = parse(block("prefix: keep", "rewrite_host: true"))

    assert (found.prefix, found.rewrite_host) == ("keep", True)


@pytest.mark.parametrize("text", ["", "# Only a heading\n", "text\n---\ntitle: late\n---\n", "----\ntitle: x\n----\n"])
def test_a_readme_without_a_block_says_nothing_and_is_all_body(text: str) -> None:
    assert parse(text) == FrontMatter(body=text)


def test_an_empty_block_says_nothing() -> None:
    assert parse("---\n---\nbody") == FrontMatter(body="body")


def test_windows_line_ends_and_a_byte_order_mark_are_no_obstacle() -> None:
    assert parse(b"\xef\xbb\xbf---\r\ntitle: Hello\r\n---\r\nbody").title == "Hello"


def test_a_line_of_dashes_inside_the_body_does_not_end_it() -> None:
    assert parse("---\ntitle: a\n---\none\n---\ntwo\n").body == "one\n---\ntwo\n"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("sdk: flask", "sdk: expected one of docker, gradio, streamlit, static."),
        ("colorFrom: '#ff0000'", "colorFrom: expected one of red,"),
        ("colorTo: [red]", "colorTo: expected one of red,"),
        ("app_port: 0", "app_port: expected a port between 1 and 65535."),
        ("app_port: 65536", "app_port: expected a port"),
        ("app_port: true", "app_port: expected a port"),
        ("app_port: '٣'", "app_port: expected a port"),
        ("app_port: 7860.5", "app_port: expected a port"),
        ("app_file: ../../etc/passwd", "app_file: expected a path inside the repository"),
        ("app_file: /etc/passwd", "app_file: expected a path inside the repository"),
        ("app_file: -c", "app_file: expected a path inside the repository"),
        ("app_file: .git/config", "app_file: expected a path inside the repository"),
        ("app_file: 'a\\b'", "app_file: expected a path inside the repository"),
        ("app_file: 7", "app_file: expected the path of a file"),
        ('app_file: "a\\nb"', "app_file: expected the path of a file"),
        ("startup_duration_timeout: soon", 'startup_duration_timeout: expected a duration such as "30m"'),
        ("startup_duration_timeout: 30", 'startup_duration_timeout: expected a duration such as "30m"'),
        ("startup_duration_timeout: 0m", "startup_duration_timeout: expected between one second and one day."),
        ("startup_duration_timeout: 2d", "startup_duration_timeout: expected between one second and one day."),
        ("python_version: '3,10'", "python_version: expected a version"),
        ("python_version: latest", "python_version: expected a version"),
        ("sdk_version: $(reboot)", "sdk_version: expected a version"),
        ("title: {a: b}", "title: expected a text."),
        ("prefix: maybe", "prefix: expected one of keep, strip, detect."),
        ("rewrite_host: 'yes please'", "rewrite_host: expected true or false."),
    ],
)
def test_a_wrong_value_is_left_out_with_a_sentence(line: str, sentence: str) -> None:
    found = parse(block(line))

    assert len(found.warnings) == 1
    assert found.warnings[0].sentence.startswith(sentence)
    assert found == FrontMatter(warnings=found.warnings, body="# Body\n")


def test_one_wrong_value_does_not_cost_the_others() -> None:
    found = parse(block("title: Fine", "app_port: nonsense", "sdk: docker"))

    assert (found.title, found.sdk, found.app_port) == ("Fine", "docker", None)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("title: [unclosed", "The block is not valid YAML (line"),
        ("- a\n- b", "The block is not a list of 'key: value' lines"),
        ("just a sentence", "The block is not a list of 'key: value' lines"),
        ("[" * 5000, "The block"),
        ("a: " + "[" * 15000, "The block cannot be read as YAML"),
        ("a: " + "[{b: " * 2000, "The block cannot be read as YAML"),
        ("? [[" + "[" * 40 + "]" * 42, "The block cannot be read as YAML"),
        ("!!python/object/apply:os.system [reboot]", "The block is not a list of 'key: value' lines"),
        ("a: b\n--- c", "The block is not a list of 'key: value' lines"),
        ("a: \x00", "The block cannot be read as YAML"),
        ("title: x\n" * BLOCK_LIMIT, "The block is longer than"),
    ],
)
def test_a_block_that_cannot_be_read_is_ignored_with_a_sentence(content: str, sentence: str) -> None:
    found = parse(f"---\n{content}\n---\nbody")

    assert len(found.warnings) == 1
    assert found.warnings[0].sentence.startswith(sentence)
    assert (found.title, found.body) == ("", "body")


@pytest.mark.parametrize(
    "value",
    ["!!int ''", "!!float ''", "!!bool foo", "!!timestamp foo", "!!null x", "!!binary '%'", "!foo bar", "!!int seven"],
)
def test_a_tag_that_does_not_fit_its_value_costs_that_value_alone(value: str) -> None:
    found = parse(block(f"title: {value}", "sdk: docker"))

    assert (found.title, found.sdk) == ("", "docker")
    assert [warning.sentence for warning in found.warnings] == ["title: its tag does not fit the value."]


def test_a_tag_that_says_what_a_value_is_anyway_changes_nothing() -> None:
    found = parse(block("title: !!str 3.10", "app_port: !!int 8080", "rewrite_host: !!bool yes"))

    assert (found.title, found.app_port, found.rewrite_host, found.warnings) == ("3.10", 8080, True, ())


def test_a_version_is_read_as_it_is_written() -> None:
    assert parse(block("python_version: 3.10", "sdk_version: 5")).python_version == "3.10"


def test_an_alias_stands_for_the_text_it_names() -> None:
    assert parse(block("a: &name Octopus", "title: *name")).title == "Octopus"


@pytest.mark.parametrize("lines", [("a: &a [*a]", "title: *a"), ("title: &t {x: *t}",), ("? &k title", ": *k")])
def test_a_value_within_itself_is_no_obstacle(lines: tuple[str, ...]) -> None:
    assert isinstance(parse(block(*lines)), FrontMatter)


def test_a_value_that_refers_to_itself_a_billion_times_costs_nothing() -> None:
    lines = ["a: &a [x,x,x,x,x,x,x,x,x]"]
    lines += [f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]" for old, new in zip("abcdefgh", "bcdefghi", strict=True)]

    found = parse(block(*lines, "title: *i"))

    assert found.title == ""
    assert [warning.sentence for warning in found.warnings] == ["title: expected a text."]


def test_texts_are_cut_and_lose_what_does_not_print() -> None:
    found = parse(block(f"title: {'x' * 400}", 'short_description: "a\\u0000b\\e[31mc\\u202ed"'))

    assert found.title == "x" * 255
    assert found.short_description == "ab[31mcd"


def test_numbers_and_dates_are_texts_where_a_text_is_meant() -> None:
    found = parse(block("title: 2048", "short_description: 2024-99-99"))

    assert (found.title, found.short_description) == ("2048", "2024-99-99")


@QUICK
@given(st.binary(max_size=300))
def test_no_content_whatsoever_makes_it_fail(content: bytes) -> None:
    found = parse(b"---\n" + content + b"\n---\n")

    assert isinstance(found, FrontMatter)


# What YAML is made of, so that chance finds its corners.
PIECES = [
    *("title", "sdk", "app_port", "rewrite_host", "<<", ": ", "\n", "\n  ", "- ", "? "),
    *("[", "]", "{", "}", ",", "'", '"', "%YAML 1.1\n", "%TAG ! x\n", "--- ", "... ", "#"),
    *("!!int ", "!!float ", "!!bool ", "!!timestamp ", "!!null ", "!!set ", "!!omap ", "!!pairs ", "!!binary ", "!x "),
    *("&a ", "*a", "| ", "> ", "!", "0x_", "0b_", "1:2", "1e999", "9" * 5000),
    *("2024-99-99", "~", ".nan", "\\", "\t", "\x00", "\ufeff", "\x85", "\u2028", "\ud800", "true", "é"),
]


@settings(QUICK, max_examples=400)
@given(st.lists(st.sampled_from(PIECES), max_size=25))
def test_no_yaml_whatsoever_makes_it_fail(pieces: list[str]) -> None:
    found = parse("---\ntitle: " + "".join(pieces) + "\n---\n")

    assert isinstance(found, FrontMatter)
    assert "\x00" not in found.title + found.emoji + found.short_description


@QUICK
@given(
    st.dictionaries(
        st.sampled_from(["title", "emoji", "sdk", "app_file", "app_port", "python_version", "prefix", "rewrite_host"]),
        st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=4),
    )
)
def test_no_value_whatsoever_makes_it_fail(values: dict[str, object]) -> None:
    import yaml

    found = parse("---\n" + yaml.safe_dump(values) + "---\n")

    assert found.app_port is None or 1 <= found.app_port <= 65535
    assert found.app_file is None or ".." not in found.app_file.split("/")
