"""What an image is built on is read from its Dockerfile, where it is plainly said."""

from __future__ import annotations

import pytest

from gpu_worker.base_images import base_of


@pytest.mark.parametrize(
    ("dockerfile", "base"),
    [
        ("FROM nvidia/cuda:12.8.0-base\nRUN true\n", "nvidia/cuda:12.8.0-base"),
        ("# a remark\nfrom --platform=linux/amd64 python:3.11 as app\n", "python:3.11"),
        ("ARG BASE=python:3.11\nFROM ${BASE}\n", "given:1"),
        ("ARG BASE='python:3.11'\nARG OTHER=$BASE\nFROM $BASE\n", "given:1"),
        ("ARG VERSION=3.11\nFROM python:${VERSION}-slim\n", "python:3.11-slim"),
        ("FROM golang:1 AS build\nFROM debian:12\nCOPY --from=build /a /a\n", "debian:12"),
        ("FROM nvidia/cuda:1 AS base\nFROM node:22 AS page\nFROM Base AS app\nFROM app\n", "nvidia/cuda:1"),
        ("FROM \\\n  python:3.11\n", "python:3.11"),
        ("FROM scratch\n", None),
        ("FROM python:${UNKNOWN}\n", None),
        ("RUN true\n", None),
        ("", None),
    ],
)
def test_the_last_stage_s_base_is_found(dockerfile: str, base: str | None) -> None:
    assert base_of(dockerfile, {"BASE": "given:1"}) == base
