"""Own images on a real engine: seen, dated, kept where needed, and gone for good with what only they had."""

from __future__ import annotations

import os
import random
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker
import pytest
import requests

from gpu_worker.containers.build_cache import Record, worth_removing
from gpu_worker.containers.image_store import ImageStore
from gpu_worker.garbage import OwnImage
from gpu_worker.images import find_build_tool
from tests.gpu_worker.worker import eventually

pytestmark = pytest.mark.docker
KIB, MIB = 1024, 1024 * 1024


@pytest.fixture
def engine() -> Iterator[Any]:
    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture
def worker_id(engine: Any) -> Iterator[str]:
    mine = str(uuid.uuid4())
    yield mine
    for image in engine.images.list(filters={"label": f"tests.of={mine}"}):
        engine.images.remove(str(image.id), force=True)


@pytest.fixture
def build(worker_id: str, tmp_path: Path) -> Callable[..., str]:
    """Builds an image of our own, or (owned=False) one of somebody else's; its id."""
    tool = find_build_tool()
    assert tool is not None

    def make(name: str, *sizes: int, owned: bool = True) -> str:
        context = tmp_path / name.replace("/", "-").replace(":", "-")
        context.mkdir(exist_ok=True)
        steps = ["FROM scratch"]
        for place, size in enumerate(sizes or (300 * KIB + len(list(tmp_path.iterdir())),)):
            (context / f"layer-{place}").write_bytes(random.Random(f"{worker_id}{size}").randbytes(size))
            steps.append(f"COPY layer-{place} /layer-{place}")
        (context / "Dockerfile").write_text("\n".join(steps) + "\n")
        labels = {"tests.of": worker_id}
        if owned:
            labels |= {"openface.worker": worker_id, "openface.role": "image", "openface.repository": "7"}
        argv = [tool.path, *tool.build, "--quiet", f"--tag={name}", str(context)]
        argv += [f"--label={key}={value}" for key, value in labels.items()]
        done = subprocess.run(argv, env={**os.environ, **tool.environment}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return make


def cached(engine: Any, size: int) -> list[str]:
    """The layers in the build cache that have exactly this size."""
    records = engine.api.df()["BuildCache"] or []
    return [record["ID"] for record in records if record["Size"] == size and record["Type"] == "regular"]


def gone(store: ImageStore, *images: OwnImage) -> list[OwnImage]:
    """Have them removed; which are gone."""
    removed = list[OwnImage]()
    store.remove_all(images, removed.append)
    return removed


def test_only_this_worker_s_images_are_seen(engine: Any, worker_id: str, build: Callable[..., str]) -> None:
    mine = build("openface/t-7:one")
    build("openface/t-7:foreign", owned=False)

    [image] = ImageStore(worker_id).all()

    assert (image.id, image.names, image.repository) == (mine, ("openface/t-7:one",), "7")
    assert image.size >= 300 * KIB
    assert not image.in_use
    assert ImageStore(str(uuid.uuid4())).all() == []


def test_using_an_image_dates_it_again(worker_id: str, build: Callable[..., str]) -> None:
    first, second = build("openface/t-7:one"), build("openface/t-7:two")
    store = ImageStore(worker_id)

    def order() -> list[str]:
        return [image.id for image in sorted(store.all(), key=lambda image: image.used_at)]

    def used_again() -> bool:  # the engine's dates are read to the second
        store.note_use(first)
        return order() == [second, first]

    eventually(used_again, what="the newer date")


def test_the_last_image_of_a_repository_that_ran_is_marked(worker_id: str, build: Callable[..., str]) -> None:
    first, second = build("openface/t-7:one"), build("openface/t-7:two")
    store = ImageStore(worker_id)

    def good() -> list[str]:
        return [image.id for image in store.all() if image.last_good]

    store.note_good(SimpleNamespace(image_id=first))  # type: ignore[arg-type]
    assert good() == [first]
    store.note_good(SimpleNamespace(image_id=second))  # type: ignore[arg-type]
    assert good() == [second]


def test_a_removed_image_takes_its_part_of_the_build_cache_along(
    engine: Any, worker_id: str, build: Callable[..., str]
) -> None:
    first, second = sizes_of(worker_id)
    build("openface/t-7:one", first, second)
    store = ImageStore(worker_id)
    store.note_good(SimpleNamespace(image_id=store.all()[0].id))  # type: ignore[arg-type]  # it then has two names
    assert [len(cached(engine, size)) for size in (first, second)] == [1, 1]

    [image] = store.all()
    assert gone(store, image) == [image]

    assert store.all() == []
    assert [len(cached(engine, size)) for size in (first, second)] == [0, 0]


def test_however_many_go_the_build_cache_is_asked_three_times(
    engine: Any, worker_id: str, build: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each question costs an engine that has built much some seconds."""
    first, second = sizes_of(worker_id)
    sizes = [first, second, first + 70000, second + 70000]
    for name, size in zip(("a", "b", "c", "d"), sizes, strict=True):
        build(f"openface/t-7:{name}", size)
    asked = list[str]()
    send = requests.Session.send

    def counted(self: requests.Session, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        asked.append(str(request.path_url).partition("?")[0].rpartition("/")[2])
        return send(self, request, **options)

    store = ImageStore(worker_id)
    images = store.all()
    monkeypatch.setattr(requests.Session, "send", counted)
    assert len(gone(store, *images)) == 4

    assert (asked.count("df"), asked.count("prune")) == (2, 1)
    assert [len(cached(engine, size)) for size in sizes] == [0, 0, 0, 0]


def test_only_what_is_worth_the_engines_time_is_removed_from_its_cache() -> None:
    """With what was built upon it, which would keep it."""
    records = {
        "large": Record(5 * MIB, ()),
        "upon-large": Record(3, ("large",)),
        "upon-that": Record(4, ("upon-large", "elsewhere")),
        "small": Record(400, ("elsewhere",)),
    }

    assert worth_removing(records) == {"large", "upon-large", "upon-that"}


def test_what_a_foreign_image_shares_stays(engine: Any, worker_id: str, build: Callable[..., str]) -> None:
    shared, own = sizes_of(worker_id)
    build("openface/t-7:one", shared, own)
    foreign = build("somebody/else:one", shared, owned=False)

    [image] = (store := ImageStore(worker_id)).all()
    assert gone(store, image) == [image]

    assert [len(cached(engine, size)) for size in (shared, own)] == [1, 0]
    assert engine.images.get(foreign).tags == ["somebody/else:one"]


def test_an_image_that_a_container_uses_stays(engine: Any, worker_id: str, build: Callable[..., str]) -> None:
    image_id = build("openface/t-7:one")
    container = engine.containers.create(image_id, ["/layer-0"], network_mode="none")  # never started
    try:
        [image] = (store := ImageStore(worker_id)).all()

        assert image.in_use
        assert gone(store, image) == []  # also where it came into use after we had looked
        assert engine.images.get(image_id)
    finally:
        container.remove()


def test_an_image_that_somebody_named_stays_under_that_name(
    engine: Any, worker_id: str, build: Callable[..., str]
) -> None:
    image_id = build("openface/t-7:one")
    engine.api.tag(image_id, "somebody/keeps-it", "1")

    [image] = (store := ImageStore(worker_id)).all()

    assert gone(store, image) == []
    [again] = store.all()
    assert gone(store, again) == []  # the next time as well
    assert engine.images.get(image_id).tags == ["somebody/keeps-it:1"]


def sizes_of(worker_id: str) -> tuple[int, int]:
    """Two sizes of this test's own, to find the build cache's records of its layers by."""
    return 1400 * KIB + int(worker_id[:4], 16), 1600 * KIB + int(worker_id[9:13], 16)
