"""What a README says about its Space: the YAML block between two lines of `---` at its top.

The keys are Hugging Face's, so that a Space moves here without a change, and two of ours (`prefix`, `rewrite_host`).
Nothing here can fail: what is wrong is left out, with advice for the owner. And nothing here places a job: that is
what topics are for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml

from spaces.advice import Advice

README_LIMIT = 1024 * 1024  # bytes of a README that are read at all
BLOCK_LIMIT = 16 * 1024  # characters; the parser reads some 100 kB/s at worst
NESTING_LIMIT = 32  # lists in mappings in lists; our own keys have none
SDKS = ("docker", "gradio", "streamlit", "static")
COLOURS = ("red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray")
STARTUP_MAX_SECONDS = 24 * 3600

_BLOCK = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_DURATION = re.compile(r"(\d{1,6})\s*([smhd])\Z")
_TAG = "tag:yaml.org,2002:"
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class FrontMatter:
    """The keys that we understand; None or empty where the README does not say."""

    title: str = ""
    emoji: str = ""
    color_from: str = ""
    color_to: str = ""
    short_description: str = ""
    sdk: Literal["docker", "gradio", "streamlit", "static"] | None = None
    sdk_version: str = ""
    python_version: str = ""
    app_file: str | None = None
    app_port: int | None = None
    startup_timeout_seconds: int | None = None
    run_timeout_seconds: int | None = None
    prefix: Literal["keep", "strip", "detect"] | None = None
    rewrite_host: bool | None = None
    warnings: tuple[Advice, ...] = ()
    body: str = field(default="", repr=False)  # the README without the block


def parse(readme: bytes | str) -> FrontMatter:
    """Read a README. Never raises."""
    text = readme.decode("utf-8", "replace") if isinstance(readme, bytes) else readme
    block = _BLOCK.match(text)
    if block is None:
        return FrontMatter(body=text)
    body = text[block.end() :]
    if len(block[1]) > BLOCK_LIMIT:
        return FrontMatter(warnings=(Advice("readme_block_long", {"limit": BLOCK_LIMIT}),), body=body)
    try:
        values = _top_level(block[1])
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = Advice("readme_block_yaml") if mark is None else Advice("readme_block_line", {"line": mark.line + 2})
        return FrontMatter(warnings=(where,), body=body)
    except Exception:  # a foreign parser at hostile text: no list of its exceptions would ever be complete
        return FrontMatter(warnings=(Advice("readme_block_unreadable"),), body=body)
    if values is None:
        return FrontMatter(warnings=(Advice("readme_block_no_keys"),), body=body)
    known: dict[str, Any] = {}
    warnings: list[Advice] = []
    for key, (name, read) in _KEYS.items():
        value = values.get(key, _NOTHING)
        if value is not None and value.kind == "null":
            continue
        try:
            known[name] = read(_fitting(value))
        except _Wrong as wrong:
            warnings.append(Advice(wrong.code, {"key": key, **wrong.facts}))
    return FrontMatter(**known, warnings=tuple(warnings), body=body)


class _Wrong(Exception):
    """A value is not what its key needs: a code of `spaces.advice.README_VALUES`, and what its sentence names."""

    def __init__(self, code: str, **facts: str) -> None:
        super().__init__(code)
        self.code, self.facts = code, facts


@dataclass(frozen=True, slots=True)
class _Scalar:
    """A value as it is written. `kind` is what YAML would make of it unquoted; `tag` what somebody forced upon it."""

    text: str
    kind: str = "str"
    tag: str | None = None


_NOTHING = _Scalar("", "null")


def _top_level(block: str) -> dict[str, _Scalar | None] | None:
    """Return the block's keys and values; None stands for a list or mapping. None altogether: it is no mapping.

    Read from the parser's events, so that no value is ever constructed: neither a tag, nor a date, nor an alias of an
    alias, nor a merge can cost more than its letters. Raises whatever the parser raises.
    """
    loader: Any = yaml.SafeLoader(block)  # half of its methods have no types
    try:
        found: dict[str, _Scalar | None] = {}
        anchors: dict[str, _Scalar | None] = {}
        loader.get_event()  # the stream's start
        if loader.check_event(yaml.StreamEndEvent):
            return found
        loader.get_event()  # the document's start
        first = loader.get_event()
        if not isinstance(first, yaml.MappingStartEvent):
            nothing = isinstance(first, yaml.ScalarEvent) and _scalar(loader, first).kind == "null"
            return found if nothing else None
        while not loader.check_event(yaml.MappingEndEvent):
            key = _node(loader, anchors)
            value = _node(loader, anchors)
            if key is not None:
                found[key.text] = value
        loader.get_event()
        while not loader.check_event(yaml.StreamEndEvent):
            loader.get_event()
            if not loader.check_event(yaml.StreamEndEvent, yaml.DocumentEndEvent):
                return None  # a second document
        return found
    finally:
        loader.dispose()


def _node(loader: Any, anchors: dict[str, _Scalar | None]) -> _Scalar | None:
    """Read the next scalar, or skip the next list or mapping."""
    event = loader.get_event()
    if isinstance(event, yaml.AliasEvent):
        return anchors.get(str(event.anchor))
    value = _scalar(loader, event) if isinstance(event, yaml.ScalarEvent) else None
    if event.anchor is not None:
        anchors[event.anchor] = value
    depth = int(isinstance(event, yaml.CollectionStartEvent))
    while depth:
        inner = loader.get_event()
        depth += isinstance(inner, yaml.CollectionStartEvent) - isinstance(inner, yaml.CollectionEndEvent)
        if depth > NESTING_LIMIT:  # the parser's time is the square of the depth
            raise ValueError("nested too deeply")
    return value


def _scalar(loader: Any, event: yaml.ScalarEvent) -> _Scalar:
    plain = event.style is None
    resolved = loader.resolve(yaml.ScalarNode, event.value, (True, False)) if plain else _TAG + "str"
    return _Scalar(event.value, resolved.removeprefix(_TAG), event.tag)


def _fitting(value: _Scalar | None) -> _Scalar | None:
    """Return the value if its explicit tag, where it has one, says what it is anyway. `!!str` and `!` make a text."""
    if value is None or value.tag is None or value.tag == _TAG + value.kind:
        return value
    if value.tag in ("!", _TAG + "str"):
        return _Scalar(value.text)
    raise _Wrong("readme_tag")


def _text(limit: int) -> Callable[[_Scalar | None], str]:
    def read(value: _Scalar | None) -> str:
        if value is None:
            raise _Wrong("readme_text")
        # Control characters would travel into pages, headers and environments.
        cleaned = "".join(c for c in value.text.strip() if c.isprintable() or c == "\u200d")
        return cleaned[:limit]

    return read


def _one_of(*allowed: str) -> Callable[[_Scalar | None], str]:
    def read(value: _Scalar | None) -> str:
        text = value.text.strip().lower() if value is not None else ""
        if text not in allowed:
            raise _Wrong("readme_choice", allowed=", ".join(allowed))
        return text

    return read


def _version(value: _Scalar | None) -> str:
    # As it is written: 3.10 without quotes is the number 3.1 to YAML, and nobody means that.
    text = value.text if value is not None else ""
    if not re.fullmatch(r"\d{1,4}(?:\.\d{1,6}){0,3}(?:[a-z0-9.+-]{0,16})", text, re.ASCII):
        raise _Wrong("readme_version")
    return text


def _file(value: _Scalar | None) -> str:
    path = value.text if value is not None and value.kind == "str" else ""
    if not 0 < len(path) <= 1024 or not path.isprintable():
        raise _Wrong("readme_file")
    parts = path.split("/")
    if path.startswith(("/", "-")) or "\\" in path or any(part in ("", ".", "..", ".git") for part in parts):
        raise _Wrong("readme_path_outside")
    return path


def _port(value: _Scalar | None) -> int:
    text = value.text if value is not None else ""
    port = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0
    if not 1 <= port <= 65535:
        raise _Wrong("readme_port")
    return port


def _duration(value: _Scalar | None) -> int:
    match = _DURATION.match(value.text.strip().lower()) if value is not None else None
    if match is None:
        raise _Wrong("readme_duration")
    seconds = int(match[1]) * _SECONDS[match[2]]
    if not 1 <= seconds <= STARTUP_MAX_SECONDS:
        raise _Wrong("readme_duration_bounds")
    return seconds


def _flag(value: _Scalar | None) -> bool:
    if value is None or value.kind != "bool":
        raise _Wrong("readme_flag")
    return value.text.lower() in ("true", "yes", "on")


_KEYS: dict[str, tuple[str, Callable[[_Scalar | None], Any]]] = {
    "title": ("title", _text(255)),
    "emoji": ("emoji", _text(16)),
    "colorFrom": ("color_from", _one_of(*COLOURS)),
    "colorTo": ("color_to", _one_of(*COLOURS)),
    "short_description": ("short_description", _text(255)),
    "sdk": ("sdk", _one_of(*SDKS)),
    "sdk_version": ("sdk_version", _version),
    "python_version": ("python_version", _version),
    "app_file": ("app_file", _file),
    "app_port": ("app_port", _port),
    "startup_duration_timeout": ("startup_timeout_seconds", _duration),
    "run_duration_timeout": ("run_timeout_seconds", _duration),
    "prefix": ("prefix", _one_of("keep", "strip", "detect")),
    "rewrite_host": ("rewrite_host", _flag),
}
