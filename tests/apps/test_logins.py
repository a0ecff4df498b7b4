"""Apps with a login of their own behind /run: their cookies and redirects, below the prefix."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.apps.conftest import OpenApp
from tests.apps.sources import source

pytestmark = [pytest.mark.browser, pytest.mark.index, pytest.mark.timeout(900)]


@pytest.mark.parametrize("told", ["knows-its-prefix", "knows-no-prefix"])
def test_flask_redirects_links_and_remembers_who_signed_in(open_app: OpenApp, tmp_path: Path, told: str) -> None:
    repository = source("flask", tmp_path / f"flask-{told}")
    if told == "knows-no-prefix":
        program = repository / "app.py"
        kept = [line for line in program.read_text().splitlines() if not line.startswith("app.wsgi_app")]
        program.write_text("\n".join(kept))
    visit = open_app(repository)
    app = visit.app

    expect(app.get_by_role("heading")).to_have_css("color", "rgb(0, 128, 128)")
    app.get_by_label("Your name").fill("Ada")
    app.get_by_role("button", name="Sign in").click()
    expect(app.get_by_text("Hello, Ada!")).to_be_visible()
    expect(app.get_by_text("Welcome.")).to_be_visible()
    app.get_by_role("link", name="Once more").click()
    expect(app.get_by_text("Welcome.")).to_have_count(0)
    expect(app.get_by_text("Hello, Ada!")).to_be_visible()
    sessions = [cookie["path"] for cookie in visit.page.context.cookies() if cookie["name"] == "session"]
    assert sessions == [f"{visit.prefix}/"]
    app.get_by_role("button", name="Sign out").click()
    expect(app.get_by_text("Who are you?")).to_be_visible()
    assert f"{visit.address}/login" in visit.frames()

    assert visit.failed == set()
    # What url_for makes without ProxyFix is sent back by its Referer; the redirects need no such way round.
    assert visit.escaped == (set() if told == "knows-its-prefix" else {"/static/style.css", "/login", "/", "/logout"})


def test_gradio_with_a_password_lets_nobody_in_without_it(open_app: OpenApp, tmp_path: Path) -> None:
    repository = source("gradio", tmp_path / "gradio-auth", requirements="gradio-6.txt")
    program = repository / "app.py"
    program.write_text(program.read_text().replace(".launch()", '.launch(auth=("ada", "lovelace"))'))
    visit = open_app(repository)
    app = visit.app

    for password in ("guessed", "lovelace"):
        app.get_by_label("Username").fill("ada")
        app.get_by_label("Password").fill(password)
        app.get_by_role("button", name="Login").click()
        if password == "guessed":
            expect(app.get_by_text("Incorrect Credentials")).to_be_visible()
    app.get_by_label("Name", exact=True).fill("Ada")  # not "Username"
    app.get_by_role("button", name="Greet").click()
    expect(app.get_by_label("Greeting")).to_have_value("Hello, Ada!")

    paths = {cookie["path"] for cookie in visit.page.context.cookies() if cookie["name"].startswith("access-token-")}
    assert paths == {f"{visit.prefix}/"}
    assert visit.escaped == set()
    assert visit.failed == {f"400 {visit.prefix}/login"}
