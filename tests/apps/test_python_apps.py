"""Python's frameworks behind /run: a click that runs on the server, and a file that comes back."""

from __future__ import annotations

import hashlib
import random
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.apps.conftest import OpenApp
from tests.apps.sources import source
from tests.apps.visit import text_file

pytestmark = [pytest.mark.browser, pytest.mark.index, pytest.mark.timeout(900)]

FILE = text_file("さくら")


def test_streamlit_reruns_and_takes_files_also_one_of_50_mb(open_app: OpenApp, tmp_path: Path) -> None:
    visit = open_app(source("streamlit", tmp_path / "streamlit"))

    for count in (1, 2):
        visit.app.get_by_role("button", name="Count").click()
        expect(visit.app.get_by_text(f"Counted {count} times.")).to_be_visible()
    visit.app.locator("input[type=file]").set_input_files(FILE)
    expect(visit.app.get_by_text("Backwards: らくさ")).to_be_visible()

    large = tmp_path / "large.bin"
    large.write_bytes(content := random.Random(50).randbytes(50_000_000))
    visit.app.locator("input[type=file]").set_input_files(large)
    expect(visit.app.get_by_text(f"50000000 bytes, SHA-256 {hashlib.sha256(content).hexdigest()}")).to_be_visible()

    assert visit.escaped == visit.failed == set()
    assert visit.sockets == [f"{visit.prefix}/_stcore/stream"]


@pytest.mark.parametrize("told_by", ["readme", "answers"])
def test_jupyterlab_runs_a_cell_and_keeps_its_prefix(open_app: OpenApp, tmp_path: Path, told_by: str) -> None:
    repository = source("jupyterlab", tmp_path / f"jupyterlab-{told_by}")
    if told_by == "answers":  # / is not found, the prefix is
        readme = (repository / "README.md").read_text()
        (repository / "README.md").write_text(readme.replace("prefix: keep\n", ""))
    visit = open_app(repository)

    visit.app.get_by_text("sums.ipynb").dblclick()
    expect(visit.app.get_by_text("Python 3 (ipykernel) | Idle")).to_be_visible()
    visit.app.get_by_role("button", name="Run this cell and advance").click()
    expect(visit.app.locator(".jp-OutputArea-output")).to_contain_text("the answer is 42")

    assert visit.escaped == set()
    assert any(re.fullmatch(f"{visit.prefix}/api/kernels/[0-9a-f-]+/channels", path) for path in visit.sockets)


def test_fastapi_tries_out_its_documentation_and_redirects_and_takes_a_file(open_app: OpenApp, tmp_path: Path) -> None:
    visit = open_app(source("fastapi", tmp_path / "fastapi"))
    app = visit.app
    expect(app.get_by_text("a mounted script ran")).to_be_visible()

    app.get_by_label("Any text").set_input_files(FILE)
    app.get_by_role("button", name="Send").click()
    expect(app.get_by_text("らくさ")).to_be_visible()

    frame = visit.page.frames[1]
    frame.goto(f"{visit.address}/")
    app.get_by_role("link", name="Moved").click()  # two redirects, each to a path from the root
    expect(app.get_by_text('["tea","coffee"]')).to_be_visible()
    assert frame.url == f"{visit.address}/items/"

    frame.goto(f"{visit.address}/")
    app.get_by_role("link", name="Documentation").click()
    app.get_by_role("button", name="GET /hello/{name}").first.click()
    app.get_by_role("button", name="Try it out").click()
    app.get_by_placeholder("name").fill("Ada")
    app.get_by_role("button", name="Execute").click()
    expect(app.locator(".live-responses-table tbody .response-col_description").first).to_contain_text("Hello, Ada!")

    assert visit.escaped == visit.failed == set()


@pytest.mark.parametrize(
    ("name", "sockets"),
    [
        ("nicegui", ["/_nicegui_ws/socket.io/"]),
        ("panel", ["/ws"]),
        ("dash", []),
        ("marimo", ["/ws"]),
        ("shiny", ["/websocket/"]),
    ],
)
def test_what_is_clicked_and_sent_runs_on_the_server(
    open_app: OpenApp, tmp_path: Path, name: str, sockets: list[str]
) -> None:
    visit = open_app(source(name, tmp_path / name))

    expect(visit.app.get_by_text("Counted 0 times.")).to_be_visible()
    visit.app.get_by_role("button", name="Count").click()
    expect(visit.app.get_by_text("Counted 1 times.")).to_be_visible()
    visit.app.locator("input[type=file]").set_input_files(FILE)
    expect(visit.app.get_by_text("Backwards: らくさ")).to_be_visible()

    assert visit.escaped == visit.failed == set()
    assert visit.sockets == [visit.prefix + path for path in sockets]
