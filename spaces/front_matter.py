"""What a README says about its Space: the YAML block between two lines of `---` at its top.

The keys are Hugging Face's, so that a Space moves here without a change, and two of ours (`prefix`, `rewrite_host`).
Nothing here can fail: what is wrong is left out, with a sentence for the owner. And nothing here places a job: that is
what topics are for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml

README_LIMIT = 1024 * 1024  # bytes of a README that are read at all
BLOCK_LIMIT = 32 * 1024  # characters; YAML is parsed at about 1 MB/s, and deep nesting costs stack
SDKS = ("docker", "gradio", "streamlit", "static")
COLOURS = ("red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray")
STARTUP_MAX_SECONDS = 24 * 3600

_BLOCK = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_DURATION = re.compile(r"(\d{1,6})\s*([smhd])\Z")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class FrontMatter:
    """The keys that we understand; None or empty where the README does not say. `warnings` are sentences."""

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
    prefix: Literal["keep", "strip"] | None = None
    rewrite_host: bool | None = None
    warnings: tuple[str, ...] = ()
    body: str = field(default="", repr=False)  # the README without the block


def parse(readme: bytes | str) -> FrontMatter:
    """Read a README. Never raises."""
    text = readme.decode("utf-8", "replace") if isinstance(readme, bytes) else readme
    block = _BLOCK.match(text)
    if block is None:
        return FrontMatter(body=text)
    body = text[block.end() :]
    if len(block[1]) > BLOCK_LIMIT:
        return FrontMatter(warnings=(f"The block is longer than {BLOCK_LIMIT} characters: ignored.",), body=body)
    try:
        values = yaml.safe_load(block[1])
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 2} of the README)" if mark is not None else ""
        return FrontMatter(warnings=(f"The block is not valid YAML{where}: ignored.",), body=body)
    except (RecursionError, ValueError, OverflowError):  # absurd nesting, impossible dates, endless numbers
        return FrontMatter(warnings=("The block cannot be read as YAML: ignored.",), body=body)
    if values is None:
        return FrontMatter(body=body)
    if not isinstance(values, dict):
        return FrontMatter(warnings=("The block is not a list of 'key: value' lines: ignored.",), body=body)
    known: dict[str, Any] = {}
    warnings: list[str] = []
    for key, (name, read) in _KEYS.items():
        if values.get(key) is None:
            continue
        try:
            known[name] = read(values[key])
        except ValueError as error:
            warnings.append(f"{key}: {error}")
    return FrontMatter(**known, warnings=tuple(warnings), body=body)


def _text(limit: int) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if isinstance(value, dict | list | bytes):
            raise ValueError("expected a text.")
        # Control characters would travel into pages, headers and environments.
        cleaned = "".join(c for c in str(value).strip() if c.isprintable() or c == "\u200d")
        return cleaned[:limit]

    return read


def _one_of(*allowed: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        text = str(value).strip().lower() if isinstance(value, str) else value
        if text not in allowed:
            raise ValueError(f"expected one of {', '.join(allowed)}.")
        return str(text)

    return read


def _version(value: Any) -> str:
    if isinstance(value, float):
        # YAML reads 3.10 as the number 3.1, and nobody can tell any more which was meant.
        raise ValueError(f'put it in quotes, as in "{value}": unquoted it is a number.')
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    if not re.fullmatch(r"\d{1,4}(?:\.\d{1,6}){0,3}(?:[a-z0-9.+-]{0,16})", text):
        raise ValueError('expected a version, as in "3.11".')
    return text


def _file(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 1024 or not value.isprintable():
        raise ValueError("expected the path of a file in the repository.")
    parts = value.split("/")
    if value.startswith(("/", "-")) or "\\" in value or any(part in ("", ".", "..", ".git") for part in parts):
        raise ValueError("expected a path inside the repository, without '..'.")
    return value


def _port(value: Any) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 6:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 65535:
        raise ValueError("expected a port between 1 and 65535.")
    return value


def _duration(value: Any) -> int:
    match = _DURATION.match(value.strip().lower()) if isinstance(value, str) else None
    if match is None:
        raise ValueError('expected a duration such as "30m" or "1h".')
    seconds = int(match[1]) * _SECONDS[match[2]]
    if not 1 <= seconds <= STARTUP_MAX_SECONDS:
        raise ValueError("expected between one second and one day.")
    return seconds


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("expected true or false.")
    return value


_KEYS: dict[str, tuple[str, Callable[[Any], Any]]] = {
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
    "prefix": ("prefix", _one_of("keep", "strip")),
    "rewrite_host": ("rewrite_host", _flag),
}
