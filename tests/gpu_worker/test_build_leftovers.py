"""Where a build keeps secrets while it runs: a worker that is killed then leaves them where its next start wipes."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

from gpu_worker.images import BuildPlan, BuildTool, ImageBuilder
from gpu_worker.inventory import take_inventory
from gpu_worker.journal import Journal
from tests.gpu_worker.builds import claim, write

# Stands for docker: notes where the secrets are and who may look there, and says which image it made.
DOCKER = """#!{python}
import json, os, sys
named = dict(word.split("=", 1) for word in sys.argv[1:] if word.startswith("--") and "=" in word)
secret = named["--secret"].split("src=")[1]
seen = {{"secret": secret, "mode": os.stat(os.path.dirname(secret)).st_mode & 0o777, "text": open(secret).read()}}
open({seen!r}, "w").write(json.dumps(seen))
open(named["--iidfile"], "w").write("sha256:1")
"""


def test_secrets_of_a_build_lie_beside_its_source_for_its_worker_alone(tmp_path: Path) -> None:
    work, seen = tmp_path / "work", tmp_path / "seen"
    source = write(work / "repository-1" / "source", {"Dockerfile": "FROM scratch\n"})
    docker = tmp_path / "docker"
    docker.write_text(DOCKER.format(python=sys.executable, seen=str(seen)))
    docker.chmod(0o755)
    job = claim(secrets={"TOKEN": "very secret"})

    image = ImageBuilder(BuildTool(str(docker), ("build",), {}, "1")).build(
        BuildPlan("inputs", dockerfile=source / "Dockerfile"), job, source,
        labels={}, output=lambda data: None, cancel=threading.Event(), started=lambda identity: None,
    )  # fmt: skip

    told = json.loads(seen.read_text())
    place = Path(told["secret"]).parent
    assert (image, told["text"], told["mode"]) == ("sha256:1", "very secret", 0o700)
    assert place.parent == source.parent, "in the directory that goes with the job, and not in what is built"
    assert not place.exists()


def test_what_a_killed_worker_left_of_a_build_is_gone_with_the_next_start(tmp_path: Path) -> None:
    work = tmp_path / "work"
    write(work / "repository-1", {"source/Dockerfile": "FROM scratch\n", "build-x/secret-0": "very secret"})

    take_inventory(Journal(tmp_path), [], work)

    assert not work.exists()
