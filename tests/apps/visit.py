"""One visit to one Space: from its page in the portal into the app, with a note of every request that went astray."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import BrowserContext, Error, FilePayload, FrameLocator, Response, WebSocket, expect

from tests.e2e.world import World

INSTALL_SECONDS = 500  # a guard against hanging: fetching hundreds of MB on a slow line
REPORT_MILLISECONDS = 2000.0
SHOWN_CHARACTERS = 2000


def text_file(text: str) -> FilePayload:
    """A file for an upload."""
    return {"name": "words.txt", "mimeType": "text/plain", "buffer": text.encode()}


class Visit:
    """`app` is what the visitor sees of the app: locators work in it as in a page."""

    app: FrameLocator

    def __init__(self, world: World, visitor: BrowserContext, space: str) -> None:
        self._world = world
        self.space, self.prefix = space, f"/run/{space}"
        self.address = world.data + self.prefix
        self.escaped: set[str] = set()
        """Paths that were asked for outside the prefix, and came back below it by their Referer."""
        self.failed: set[str] = set()
        """Answers of 400 and above: status and path."""
        self.sockets: list[str] = []
        """Paths of the WebSockets that were opened."""
        visitor.on("response", self._note)
        self.page = visitor.new_page()
        self.page.on("websocket", self._note_socket)

    def start(self, repository: Path, worker: str) -> None:
        """Import it as a Space, press Start, and wait until its frame is there."""
        topics = "space,cpu"
        self._world.manage("import_space", str(repository), self.space, "--topics", topics, "--visibility", "private")
        self._world.manage("placement", self.space, "worker", worker)
        self.page.goto(f"/spaces/{self.space}/")
        self.page.get_by_role("button", name="Start", exact=True).click()
        self._world.wait_for_state(self.space, "running", "failed", seconds=INSTALL_SECONDS)
        assert self._world.state(self.space) == "running", self._world.history(self.space)
        expect(self.page.locator("iframe")).to_be_visible()
        self.app = self.page.frame_locator("iframe")

    def stop(self) -> None:
        self.page.close()
        portal = self._world.portal("owner")
        if self._world.state(self.space) in ("running", "starting", "building"):
            portal.act(self.space, "stop")
            self._world.wait_for_state(self.space, "completed", "cancelled")

    def frames(self) -> list[str]:
        """The addresses of all frames of the page, as they are now."""
        self.hear()
        return [frame.url for frame in self.page.frames]

    def report(self) -> str:
        """What was noted, and what each frame shows: for whoever has to find out why a test failed."""
        lines = [f"{self.space}: failed {self.failed}, escaped {self.escaped}, sockets {self.sockets}"]
        for frame in self.page.frames:
            try:
                shown = frame.locator("body").inner_text(timeout=REPORT_MILLISECONDS)
            except Error as error:  # the frame is gone, or its page does not answer
                shown = error.message
            lines.append(f"{frame.url}: {shown[:SHOWN_CHARACTERS]}")
        return "\n".join(lines)

    def hear(self) -> None:
        """Let the notes catch up with the browser: playwright tells what happened only while it is asked something."""
        self.page.title()

    def _note(self, response: Response) -> None:
        address = urlsplit(response.url)
        if f"{address.scheme}://{address.netloc}" != self._world.data or address.path.endswith("favicon.ico"):
            return
        if response.status == 307 and not address.path.startswith("/run"):
            self.escaped.add(address.path)
        elif response.status >= 400:
            self.failed.add(f"{response.status} {address.path}")

    def _note_socket(self, socket: WebSocket) -> None:
        if socket.url.startswith(self._world.data.replace("http", "ws", 1)):
            self.sockets.append(urlsplit(socket.url).path)
