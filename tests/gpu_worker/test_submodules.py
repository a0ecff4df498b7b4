"""Which repository a submodule's address means: one of the same control plane, or none."""

from __future__ import annotations

import pytest

from gpu_worker.submodules import resolve

ROOT = "http://openface.lan:8091/git"
BASE = f"{ROOT}/alice/app.git"


@pytest.mark.parametrize(
    ("url", "full_name"),
    [
        ("../library.git", "alice/library"),
        ("../library", "alice/library"),
        ("../library/", "alice/library"),
        ("./../library.git", "alice/library"),
        ("../../bob/library.git", "bob/library"),
        ("../other/../library.git", "alice/library"),
        ("../app.git", "alice/app"),
        (f"{ROOT}/bob/library.git", "bob/library"),
    ],
)
def test_an_address_on_this_server_is_found_from_where_the_repository_is(url: str, full_name: str) -> None:
    assert resolve(BASE, url) == f"{ROOT}/{full_name}.git"


@pytest.mark.parametrize(
    "url",
    [
        "https://github.com/alice/library.git",
        "git@git.example:alice/library.git",
        "../../../library.git",  # above all owners
        "../../../git/alice/library.git",
        "../../../../etc/passwd",
        "./inside.git",
        "..",
        "../..",
        "../../bob",
        "",
        "/git/alice/library.git",
        "/srv/git/library.git",
        "file:///srv/git/library.git",
        "ext::sh -c id",
        "--upload-pack=id",
        "../lib rary.git",
        "../lib%2e%2e/x.git",
        "../...git",
        "../library.git\nurl = ../other.git",
        "http://openface.lan:8091@evil.example/git/bob/library.git",
        "http://openface.lan:8091/git-evil/bob/library.git",
        f"{ROOT}/../admin/library.git",
        f"{ROOT}/bob/library.git/info/refs",
    ],
)
def test_every_other_address_means_nothing_here(url: str) -> None:
    assert resolve(BASE, url) is None


def test_a_submodule_s_own_submodules_are_found_from_its_own_place() -> None:
    inner = resolve(BASE, "../../bob/library.git")

    assert inner is not None
    assert resolve(inner, "../deep.git") == f"{ROOT}/bob/deep.git"
