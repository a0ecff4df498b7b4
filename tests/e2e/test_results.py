"""A batch job from its start to the file in somebody's hands, through every process of an installation."""

from __future__ import annotations

from typing import Any

import requests

from tests.e2e.world import Portal, World

BENCH = """
import os, pathlib
results = pathlib.Path(os.environ["OPENFACE_RESULTS"])
(results / "plots").mkdir()
(results / "plots" / "loss 損失.csv").write_text("epoch,loss\\n1,0.5\\n")
(results / "weights.bin").write_bytes(bytes(range(256)) * 8192)
os.symlink("/etc/passwd", results / "passwd")
print("score: 42", flush=True)
"""


def results_of(portal: Portal, space: str) -> dict[str, Any]:
    answer = portal.get(f"/api/v1/spaces/{space}/results")
    assert answer.status_code == 200, answer.text
    return dict(answer.json()["results"])


def test_what_a_batch_job_wrote_is_listed_and_fetched_by_who_may_read_it(world: World, owner: Portal) -> None:
    files = {"README.md": "---\ntitle: Bench\napp_file: app.py\n---\n", "app.py": BENCH}
    space = world.space("bench", files, topics="benchmark", visibility="private")

    owner.act(space, "start")
    world.wait_for_state(space, "completed")

    results = results_of(owner, space)
    assert [file["path"] for file in results["files"]] == ["plots/loss 損失.csv", "weights.bin"]
    assert results["left_out"] == []
    assert "weights.bin" in owner.get(f"/spaces/{space}/").text
    csv, weights = (file["url"] for file in results["files"])
    assert csv.startswith(world.data), "files are served from the runtime origin"

    # A browser that is signed in at the portal alone is handed over, and gets the file.
    browser = {"Accept": "text/html", "Sec-Fetch-Mode": "navigate"}
    fetched = owner.session.get(csv, headers=browser, timeout=20)
    assert (fetched.status_code, fetched.text) == (200, "epoch,loss\n1,0.5\n")
    assert fetched.headers["Content-Disposition"].startswith("attachment")
    assert owner.session.get(weights, timeout=20).content == bytes(range(256)) * 8192

    # Nobody else: neither a stranger who is signed in, nor a passer-by.
    stranger = world.portal("stranger")
    assert stranger.get(f"/api/v1/spaces/{space}/results").status_code == 404
    assert stranger.session.get(csv, headers=browser, timeout=20).status_code == 404
    assert requests.get(csv, timeout=20).status_code == 404
