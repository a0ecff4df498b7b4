"""Directories inside each other, as many as somebody likes: removed, counted, and in nobody's way."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_worker.deep_trees import files_below, remove_tree
from gpu_worker.inventory import take_inventory
from gpu_worker.journal import Journal

LEVELS = 3000  # deeper than Python calls itself, and a longer path than the system takes


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """`work/repository-1/a/a/…`, with a file beside the first and below the last."""
    place = tmp_path / "work" / "repository-1"
    place.mkdir(parents=True)
    (place / "beside").touch()
    at = os.open(place, os.O_RDONLY)
    for _ in range(LEVELS):
        os.mkdir("a", dir_fd=at)
        below = os.open("a", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)
    yield place
    remove_tree(tmp_path)  # pytest's own way of tidying up recurses


def test_a_deep_tree_is_removed_and_a_link_is_not_followed(deep: Path, tmp_path: Path) -> None:
    (kept := tmp_path / "kept").mkdir()
    (kept / "file").touch()
    (deep / "link").symlink_to(kept)

    remove_tree(deep)
    remove_tree(deep)  # nothing there is fine

    assert not deep.exists()
    assert (kept / "file").exists()


def test_the_files_of_a_deep_tree_are_listed_as_far_as_paths_reach(deep: Path) -> None:
    assert [file.name for file in files_below(deep)] == ["beside"]


def test_a_worker_starts_whatever_a_build_left(deep: Path, tmp_path: Path) -> None:
    assert take_inventory(Journal(tmp_path), [], tmp_path / "work") == []

    assert not (tmp_path / "work").exists()
