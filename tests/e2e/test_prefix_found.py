"""An app that insists on its base path is served under it without a word in its README, to a program with a token."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, timedelta

import pytest
import requests

from tests.e2e.world import Portal, World, eventually

# As JupyterLab does with its base URL: nothing at the root, a redirect at the prefix, everything below it.
LAB = """\
import http.server, os
BASE = os.environ["OPENFACE_BASE_PATH"]
class Lab(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        at_home = self.path == BASE + "/"
        self.send_response(302 if at_home else 200 if self.path.startswith(BASE + "/") else 404)
        if at_home:
            self.send_header("Location", BASE + "/lab")
        body = self.path.encode()
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(("", int(os.environ["PORT"])), Lab).serve_forever()
"""


@pytest.fixture(scope="module")
def lab(world: World, owner: Portal) -> Iterator[str]:
    files = {"README.md": "---\ntitle: Lab\napp_file: app.py\n---\n", "app.py": LAB}
    space = world.space("lab", files, visibility="private")
    owner.act(space, "start")
    world.wait_for_state(space, "running")
    yield space
    owner.act(space, "stop")
    world.wait_for_state(space, "completed")


def test_it_is_found_out_and_a_token_opens_it_until_it_is_revoked(world: World, owner: Portal, lab: str) -> None:
    last_day = (date.today() + timedelta(days=2)).isoformat()
    made = owner.send(owner.prepare("/tokens/", name="notebook", ends_on=last_day))
    token = re.search(r"ofp_[A-Za-z0-9_-]{43}", made.text)
    assert token is not None

    def get(path: str) -> requests.Response:
        shown = {"X-OpenFace-Authorization": f"Bearer {token[0]}"}
        return requests.get(f"{world.data}/run/{lab}{path}", headers=shown, timeout=10)

    home = get("/")

    assert (home.status_code, home.text) == (200, f"/run/{lab}/lab")
    assert get("/api/kernels?x=1").text == f"/run/{lab}/api/kernels?x=1"
    assert f"Found: the app answers below /run/{lab}/, and not at /." in owner.get(f"/spaces/{lab}/settings/").text

    revoke = re.search(r"/tokens/\d+/revoke", made.text)
    assert revoke is not None
    assert owner.post(revoke[0]).status_code == 303
    eventually(lambda: get("/").status_code == 401, "the token is refused", seconds=5)
