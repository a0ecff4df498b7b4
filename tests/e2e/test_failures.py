"""What goes wrong is told in a sentence, and nothing is lost by it."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from tests.e2e.world import Portal, World, eventually


def reason(world: World, space: str) -> tuple[str, str]:
    rows = world.rows(
        "SELECT reason_code, reason FROM jobs_job WHERE repo = %s ORDER BY seq DESC LIMIT 1", space.split("/")[1]
    )
    return rows[0][0], rows[0][1]


def test_a_space_with_nothing_to_run_says_so(world: World, owner: Portal) -> None:
    space = world.space("empty-handed", {"README.md": "# Nothing to run\n"})

    owner.act(space, "start")
    world.wait_for_state(space, "failed")

    code, sentence = reason(world, space)
    assert code == "no_dockerfile"
    assert "Dockerfile" in sentence and "app_file" in sentence
    assert sentence in owner.get(f"/spaces/{space}/").text


def test_an_app_that_crashes_says_how_it_ended(world: World, owner: Portal) -> None:
    files = {
        "README.md": "---\nsdk: docker\napp_file: app.py\n---\n",
        "app.py": "print('last words')\nraise SystemExit(3)",
    }
    space = world.space("crashes", files)

    owner.act(space, "start")
    world.wait_for_state(space, "failed")

    code, sentence = reason(world, space)
    assert code == "exited_before_ready"
    assert "3" in sentence
    eventually(
        lambda: "last words" in owner.get(f"/spaces/{space}/logs/?stream=run").text, "the log has the last lines"
    )


def test_an_app_that_ends_later_is_not_shown_as_running(world: World, owner: Portal) -> None:
    space = world.space("ends-later")
    owner.act(space, "start")
    world.wait_for_state(space, "running")
    pid = int(owner.get(f"/run/{space}/").text.rsplit(" ", 1)[1])

    os.kill(pid, signal.SIGKILL)

    world.wait_for_state(space, "failed", seconds=10)


def test_a_failed_space_can_be_started_again(world: World, owner: Portal) -> None:
    space = world.space("mended", {"README.md": "# nothing yet\n"})
    owner.act(space, "start")
    world.wait_for_state(space, "failed")
    world.space("mended")

    owner.act(space, "start")

    world.wait_for_state(space, "running")
    owner.act(space, "stop")
    world.wait_for_state(space, "completed")


def test_a_commit_that_is_gone_fails_with_that_sentence_and_is_not_tried_again(world: World, owner: Portal) -> None:
    space = world.space("vanishes")
    world.stack.supervisor.stop("cpu1")
    owner.act(space, "start")
    (repository_id, revision) = world.rows("SELECT repository_id, revision FROM jobs_job WHERE repo = 'vanishes'")[0]
    (bare,) = [
        path
        for path in (world.installation.state_dir / "repositories").rglob("HEAD")
        if path.parent.name.removesuffix(".git") == repository_id
    ]
    git = ["git", "-c", "safe.directory=*", "-C", str(bare.parent)]
    empty = subprocess.run([*git, "commit-tree", "4b825dc642cb6eb9a060e54bf8d69288fbee4904", "-m", "x"],
                           check=True, capture_output=True, text=True, env=_somebody()).stdout.strip()  # fmt: skip
    subprocess.run([*git, "update-ref", "refs/heads/main", empty], check=True)
    subprocess.run([*git, "reflog", "expire", "--expire=now", "--all"], check=True)
    subprocess.run([*git, "gc", "--prune=now", "-q"], check=True)

    world.stack.supervisor.resume("cpu1")
    world.wait_for_state(space, "failed")

    code, sentence = reason(world, space)
    assert code == "commit_gone"
    assert revision[:7] in sentence
    assert world.rows("SELECT attempts FROM jobs_job WHERE repo = 'vanishes'") == [(1,)]


def _somebody() -> dict[str, str]:
    who = {"GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@t", "GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@t"}
    return {**os.environ, **who}


@pytest.mark.parametrize("path", ["/spaces/owner/no-such/", "/spaces/no/body/", "/run/owner/no-such/", "/no-such-page"])
def test_what_is_not_there_is_a_404(owner: Portal, path: str) -> None:
    assert owner.get(path).status_code == 404


def test_a_gpu_job_waits_rather_than_fall_back_to_a_cpu(world: World, owner: Portal) -> None:
    space = world.space("too-big", topics="space,gpu,vram-80gb")

    owner.act(space, "start")

    status = owner.status(space)
    assert status["state"] == "queued"
    page = owner.get(f"/spaces/{space}/").text
    assert "gpu1" in page
    owner.act(space, "stop")
    assert world.state(space) == "cancelled"
