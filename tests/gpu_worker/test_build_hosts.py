"""A Dockerfile asks other machines for what it needs: what listens for the worker's owner alone stays his."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_worker.errors import JobFailed
from gpu_worker.lent_images import Lender, LocalImage, NamedImages
from tests.gpu_worker.builds import Build, claim, write

OWN_NAME = socket.gethostname()
DIGEST = "sha256:" + "0" * 64


def own_address() -> str:
    """One of this machine's that others may reach too."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing
        return str(probe.getsockname()[0])


def refusal(dockerfile: str, *lent: str, here: LocalImage | None = None) -> JobFailed | None:
    try:
        NamedImages(Lender(lambda name: here, lent), "7").read(dockerfile, {"GIVEN": "127.0.0.1"})
    except JobFailed as failure:
        return failure
    return None


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.8.9.1:8080", "localhost", "LocalHost:80", "app.localhost", "localhost.", "0.0.0.0"),
        *("[::1]", "[::1]:8080", "[::]", "[::ffff:127.0.0.1]:80", "[fe80::1%25eth0]", "169.254.169.254"),
        *("user:word@127.0.0.1", "a@b@localhost", "127.1", "0x7f000001", "2130706433", "0177.0.0.1"),
        *("127。0。0。1", "１２７.0.0.1", "127%E3%80%820.0.1", "loc\u200balhost", "host.docker.internal"),
        *(OWN_NAME, OWN_NAME.upper(), "$GIVEN", "${NEAR}", "${NEAR:-x}", "127.0.0.${LAST}", "127.0.0.1:${PORT#x}"),
    ],
)
@pytest.mark.parametrize(
    "add",
    [
        "ADD http://{}/secret /x",
        'add --chown=1 ["https://{}/secret", "/x"]',
        "ONBUILD ADD \\\n  a.txt http://{} \\\n /x/",
        "ADD https://git.example/a.git git://{}/b.git /x/",
    ],
)
def test_what_is_added_from_the_worker_s_own_machine_is_refused(add: str, host: str) -> None:
    failure = refusal("FROM scratch\nARG NEAR=127.0.0.1 LAST=1\n" + add.format(host) + "\n")

    assert failure is not None
    assert failure.reason == "address_refused"


@pytest.mark.parametrize(
    "steps",
    [
        r'ADD ["http://\u0031\u00327.0.0.1/a", "/x"]',
        r'ADD ["http:\/\/127.0.0.1/a", "/x"]',
        'ENV X="a b" H=127.0.0.1\nADD http://$H/a /x',
        "ENV URL http://127.0.0.1/a\nADD $URL /x",
        "ENV A=htt B=p:// C=127.0.0.1/a\nADD $A$B$C /x",
        'ADD htt\\p://127.0".0."\\1/a /x',
        "ENV Q=127.0.0.1\nADD http://${H:-$Q}/a /x",
        "ADD git@127.0.0.1:owner/repo.git /x",
    ],
)
def test_no_way_to_write_it_hides_it(steps: str) -> None:
    failure = refusal(f"FROM scratch\n{steps}\n")

    assert failure is not None
    assert failure.reason == "address_refused"


def test_the_machine_s_own_address_is_refused_by_a_sentence_that_says_it() -> None:
    failure = refusal(f"FROM scratch\nADD http://{own_address()}:3141/simple /x\n")

    assert failure is not None
    assert failure.detail == (
        f"The Dockerfile wants something from {own_address()}, which is the worker's own machine or reached by it "
        "alone. Builds may fetch from other machines only."
    )


def test_a_host_of_any_letters_stays_within_the_sentence() -> None:
    failure = refusal("FROM scratch\nADD http://\u202e\x1blocalhost/a /x\n")

    assert failure is None or "\x1b" not in failure.detail
    assert str(refusal("FROM scratch\nADD http://\u200blocalhost/a /x\n")).startswith(
        r'The Dockerfile wants something from "\342\200\213localhost", which'
    )


@pytest.mark.parametrize(
    "line",
    [
        *("ADD https://example.com/a.tar.gz /x", "ADD http://192.0.2.7:3141/a /x", "ADD http://10.255.255.1/mirror /x"),
        *("ADD git@git.example:owner/repo.git /x", "ADD https://e.example/v${V#v}/a.tgz /x", "ADD localhost /x"),
        *("ADD 127.0.0.1.txt /x", "COPY http/localhost /x", "RUN curl http://127.0.0.1:8000/health"),
        *("RUN curl http://e.example/?from=localhost:8000/x", "RUN curl 'http://e.example/?a=b&from=127.0.0.1/x'"),
        *("ENV URL=http://localhost:8000", "ADD http://localhost.example.com/x /x", "ADD http://[2001:db8::7]/x /x"),
        *("# ADD http://localhost/x /x", "HEALTHCHECK CMD curl http://localhost:7860/"),
    ],
)
def test_whatever_comes_from_elsewhere_or_is_no_address_of_add_is_let_be(line: str) -> None:
    assert refusal(f"FROM scratch\n{line}\n") is None


@pytest.mark.parametrize("registry", ["127.0.0.1:5000", "localhost:5000", "localhost", f"{OWN_NAME}:5000"])
@pytest.mark.parametrize(
    "line", ["FROM {}/x", "FROM scratch\nCOPY --from={}/x:1 / /", "FROM scratch\nRUN --mount=from={}/x,target=/m true"]
)
def test_an_image_of_a_registry_on_the_machine_itself_is_the_owner_s_to_lend(line: str, registry: str) -> None:
    dockerfile = line.format(registry) + "\n"

    failure = refusal(dockerfile)

    assert failure is not None
    assert failure.reason == "address_refused"
    assert refusal(dockerfile, f"{registry}/*") is None
    assert refusal(dockerfile, here=LocalImage("", fetched=True)) is None  # it came to this machine by its owner


@pytest.mark.parametrize(
    "image", ["owner/x", "ghcr.io/owner/x:1", "registry.lan:5000/x", f"owner/x@{DIGEST}", "192.0.2.7/x"]
)
def test_images_of_other_registries_are_let_be(image: str) -> None:
    assert refusal(f"FROM {image}\n") is None


@pytest.mark.timeout(20)
@pytest.mark.parametrize("filling", ["ADD $A$B ", "ADD http://", "://", "[", "a@", "$a,"])
def test_a_line_without_end_stops_nobody(filling: str) -> None:
    refusal("ARG A=a A=b B=c B=d\nADD " + filling * (200_000 // len(filling)))
    refusal("ARG A=a A=b B=c B=d\n" + "".join(f"ADD {filling}{n}\n" for n in range(3_000)))


class Counting(http.server.BaseHTTPRequestHandler):
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def service() -> Iterator[tuple[int, list[str]]]:
    """What listens on the loopback of the worker's machine: its port, and what it was asked."""
    asked: list[str] = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Counting,), {"asked": asked}))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port, asked
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.docker
def test_nothing_of_the_owner_s_own_services_comes_into_an_image(
    service: tuple[int, list[str]], tmp_path: Path
) -> None:
    port, asked = service
    build = Build(claim(build_args={"NEAR": "127.0.0.1"}), tmp_path)

    for host in ("localhost", "127.0.0.1", "[::ffff:127.0.0.1]", "127。0。0。1", "$NEAR"):
        write(tmp_path, {"Dockerfile": f"FROM scratch\nARG NEAR=x\nADD http://{host}:{port}/{host} /x\n"})
        with pytest.raises(JobFailed, match="wants something from"):
            build.run()

    assert asked == []
