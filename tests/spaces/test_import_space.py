"""`manage.py import_space` puts a directory into the local forge, and putting it there twice is putting it once."""

from __future__ import annotations

import json
import os
import subprocess
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from spaces.access import get_space
from spaces.forge import get_forge
from spaces.forge.base import SYSTEM
from spaces.forge.local import repository_directory
from spaces.models import LocalRepository, Space
from tests.spaces.repositories import README, git

pytestmark = pytest.mark.django_db


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "source"
    directory.mkdir()
    (directory / "README.md").write_text(README)
    (directory / "Dockerfile").write_text("FROM scratch\n")
    return directory


def import_space(*arguments: object, **options: Any) -> dict[str, Any]:
    out = StringIO()
    call_command("import_space", *map(str, arguments), "--json", stdout=out, **options)
    return json.loads(out.getvalue())


def tree_of(full_name: str) -> list[str]:
    repo = get_forge().get_repo(*full_name.split("/"), viewer=SYSTEM)
    return [entry.path for entry in get_forge().list_tree(repo, get_forge().head(repo).sha)]


def test_a_directory_becomes_a_space(source: Path) -> None:
    done = import_space(source, "alice/app", "--topics", "space, GPU,vram-12gb", "--visibility", "public")

    assert (done["result"], done["committed"], done["repository"]) == ("created", True, "alice/app")
    assert done["topics"] == ["gpu", "space", "vram-12gb"]
    space = Space.objects.get()
    assert (space.head_revision, space.title, space.visibility) == (done["revision"], "A title", "public")
    assert done["page"] == "/spaces/alice/app/"
    assert tree_of("alice/app") == ["Dockerfile", "README.md"]


def test_a_new_repository_is_a_private_space_unless_told_otherwise(source: Path) -> None:
    done = import_space(source, "alice/app")

    assert (done["visibility"], done["topics"]) == ("private", ["space"])


def test_the_same_again_changes_nothing(source: Path) -> None:
    first = import_space(source, "alice/app", "--topics", "space,gpu", "--visibility", "public")
    second = import_space(source, "ALICE/APP")

    assert (second["result"], second["committed"]) == ("unchanged", False)
    assert {key: second[key] for key in ("revision", "visibility", "topics", "repository", "repository_id")} == {
        key: first[key] for key in ("revision", "visibility", "topics", "repository", "repository_id")
    }
    assert LocalRepository.objects.count() == Space.objects.count() == 1


def test_a_changed_directory_is_a_new_commit_on_top_of_the_old(source: Path) -> None:
    first = import_space(source, "alice/app")
    (source / "app.py").write_text("print('new')\n")
    (source / "Dockerfile").unlink()

    second = import_space(source, "alice/app", "--message", "Say something new")

    assert (second["result"], second["committed"]) == ("updated", True)
    assert tree_of("alice/app") == ["app.py", "README.md"]
    repo = get_forge().get_repo("alice", "app", viewer=SYSTEM)
    assert get_forge().head(repo).subject == "Say something new"
    assert get_forge().get_commit(repo, first["revision"]).sha == first["revision"]


def test_topics_and_visibility_can_be_changed_without_a_commit(source: Path) -> None:
    first = import_space(source, "alice/app")
    second = import_space(source, "alice/app", "--topics", "space,gpu", "--visibility", "internal")

    assert second["revision"] == first["revision"]
    assert (second["topics"], second["visibility"]) == (["gpu", "space"], "internal")


def test_the_author_s_gitignore_and_git_directory_stay_out_and_modes_stay(source: Path) -> None:
    (source / ".gitignore").write_text("__pycache__/\n.venv/\n")
    (source / "__pycache__").mkdir()
    (source / "__pycache__" / "x.pyc").write_bytes(b"x")
    (source / "run.sh").write_text("#!/bin/sh\n")
    (source / "run.sh").chmod(0o755)
    assert git("init", "--quiet", cwd=source).returncode == 0

    import_space(source, "alice/app")

    repo = get_forge().get_repo("alice", "app", viewer=SYSTEM)
    entries = get_forge().list_tree(repo, get_forge().head(repo).sha)
    assert [(entry.path, entry.executable) for entry in entries] == [
        (".gitignore", False),
        ("Dockerfile", False),
        ("README.md", False),
        ("run.sh", True),
    ]


def test_hooks_and_filters_of_the_directory_are_not_run(source: Path, tmp_path: Path) -> None:
    (source / ".gitattributes").write_text("* filter=evil\n*.bin filter=lfs\n")
    (source / "model.bin").write_text("version https://git-lfs.github.com/spec/v1\n")
    assert git("init", "--quiet", cwd=source).returncode == 0
    assert git("config", "filter.evil.clean", f"touch {tmp_path}/ran; cat", cwd=source).returncode == 0

    import_space(source, "alice/app")

    assert not (tmp_path / "ran").exists()


def test_an_empty_directory_is_a_commit_without_files(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    assert import_space(tmp_path / "empty", "alice/app")["committed"] is True
    assert tree_of("alice/app") == []


def test_people_get_a_sentence_and_warnings(source: Path) -> None:
    out, err = StringIO(), StringIO()

    call_command("import_space", str(source), "alice/app", "--topics", "gpus-0", stdout=out, stderr=err)

    assert out.getvalue().startswith("alice/app created at ")
    assert "gpus-0 is no number of GPUs" in err.getvalue()
    assert "It is not shown as a Space" in err.getvalue()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere", "alice/app"], "nowhere is not a directory."),
        ([".", "app"], "'app' is not of the form OWNER/REPO."),
        ([".", "a/b/c"], "'a/b/c' is not of the form OWNER/REPO."),
        ([".", "alice/.."], "'..' cannot be the name of a repository"),
        ([".", "a b/app"], "'a b' cannot be the name of an owner"),
        ([".", "alice/app", "--topics", "a b"], "'a b' cannot be a topic"),
        ([".", "alice/app", "--topics", "x" * 36], "cannot be a topic"),
    ],
)
def test_a_wrong_argument_is_a_sentence_and_makes_nothing(
    source: Path, arguments: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch, repositories: Path
) -> None:
    monkeypatch.chdir(source)

    with pytest.raises(CommandError) as caught:
        import_space(*arguments)

    assert sentence in str(caught.value)
    assert not LocalRepository.objects.exists()
    assert not repositories.exists()


def test_an_unreadable_file_is_a_sentence(source: Path) -> None:
    os.mkfifo(source / "pipe")  # git passes over what is no file
    (source / "broken").symlink_to("nowhere")  # and keeps a link, wherever it leads
    import_space(source, "alice/app")
    assert "broken" in tree_of("alice/app")

    # A repository inside that has no commit cannot become a submodule
    (source / "inner").mkdir()
    subprocess.run(["git", "init", "--quiet", str(source / "inner")], check=True)
    with pytest.raises(CommandError, match="git cannot take source"):
        import_space(source, "alice/app")


def test_a_failed_import_leaves_the_earlier_state(source: Path) -> None:
    first = import_space(source, "alice/app")
    directory = repository_directory(first["repository_id"])
    (directory / "refs" / "heads" / "main.lock").write_text("")

    (source / "app.py").write_text("new\n")
    with pytest.raises(CommandError, match="changed by somebody else"):
        import_space(source, "alice/app")

    (directory / "refs" / "heads" / "main.lock").unlink()
    assert get_space(_operator(), "alice", "app").head_revision == first["revision"]
    assert import_space(source, "alice/app")["result"] == "updated"


def _operator() -> Any:
    from django.contrib.auth.models import User

    return User.objects.create_user("otto", is_superuser=True)
