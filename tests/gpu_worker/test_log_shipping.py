"""A log stream is text with byte offsets: what is stored is what was written, whatever is lost on the way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpu_worker.log_shipping import BACKLOG_BYTES, LogStream, Mark, RateLimit


class Server:
    """Keeps what it gets by the rules: append at the expected offset, answer the next one."""

    def __init__(self) -> None:
        self.text = b""

    def take(self, stream: LogStream, *, limit: int = 64, lose_answer: bool = False) -> bool:
        chunk = stream.chunk(limit)
        if chunk is None:
            return False
        data = chunk.text.encode()
        if chunk.offset <= len(self.text) < chunk.offset + len(data):
            self.text += data[len(self.text) - chunk.offset :]
        if not lose_answer:
            stream.accepted(len(self.text))
        return True

    def drain(self, stream: LogStream) -> str:
        while self.take(stream):
            pass
        return self.text.decode()


def test_characters_cut_by_reads_are_joined() -> None:
    stream, server = LogStream("run"), Server()
    for byte in "grüezi 日本\n".encode():
        stream.write(bytes([byte]))

    assert server.drain(stream) == "grüezi 日本\n"


def test_carriage_returns_and_escapes_stay() -> None:
    stream, server = LogStream("run"), Server()
    stream.write(b"1%\r50%\r\x1b[32m100%\x1b[0m\n")

    assert server.drain(stream) == "1%\r50%\r\x1b[32m100%\x1b[0m\n"


def test_bytes_that_are_no_text_are_replaced() -> None:
    stream, server = LogStream("run"), Server()
    stream.write(b"a\xffb\0c")
    stream.end()

    assert server.drain(stream) == "a\ufffdb\ufffdc"


def test_a_chunk_is_the_same_until_it_is_accepted() -> None:
    stream = LogStream("run")
    stream.write(b"first ")
    before = stream.chunk()
    stream.write(b"second")

    assert before is not None
    again = stream.chunk(len(before.text))
    assert again == before


def test_a_chunk_never_splits_a_character() -> None:
    stream = LogStream("run")
    stream.write("日本".encode())

    assert [(chunk.offset, chunk.text) for chunk in [stream.chunk(4)] if chunk] == [(0, "日")]
    tiny = stream.chunk(1)
    assert tiny is not None
    assert tiny.text == "日"


@given(st.lists(st.text(max_size=30), max_size=20), st.lists(st.booleans(), max_size=60))
def test_lost_answers_lose_and_double_nothing(pieces: list[str], losses: list[bool]) -> None:
    stream, server = LogStream("run"), Server()
    for piece, lost in zip(pieces, [*losses, *[False] * len(pieces)], strict=False):
        stream.write(piece.encode())
        server.take(stream, limit=16, lose_answer=lost)
    for lost in losses:
        server.take(stream, limit=16, lose_answer=lost)

    assert server.drain(stream) == "".join(pieces).replace("\0", "\ufffd")


def test_secrets_are_masked_across_writes() -> None:
    stream, server = LogStream("run", ["hunter2!"]), Server()
    stream.write(b"password: hun")
    stream.write(b"ter2!\n")

    assert server.drain(stream) == "password: ***\n"


def test_a_chatty_app_is_thinned_with_a_line_that_says_so() -> None:
    now = [0.0]
    rate = RateLimit(per_second=100, burst=1000, clock=lambda: now[0])
    stream, server = LogStream("run", rate=rate), Server()

    for _ in range(5):
        stream.write(b"x" * 400)
    now[0] += 60
    stream.write(b"calm again\n")

    assert server.drain(stream) == "x" * 800 + "\n… 1200 bytes dropped …\n" + "calm again\n"


def test_a_long_outage_keeps_the_head_under_way_and_the_newest_tail() -> None:
    stream, server = LogStream("run", rate=RateLimit(per_second=1e12, burst=1e12)), Server()
    stream.write(b"the beginning\n")
    first = stream.chunk(14)
    for number in range(60):
        stream.write(f"{number:03}".encode() + b"." * 100_000)

    assert stream.backlog <= BACKLOG_BYTES
    assert stream.chunk(14) == first
    text = server.drain(stream)
    assert text.startswith("the beginning\n000")
    assert text.endswith("059" + "." * 100_000)
    assert text.count("bytes dropped …") >= 1


def test_after_a_restart_text_that_the_server_has_is_not_sent_again() -> None:
    former, server = LogStream("run", replays=True), Server()
    lines = [f"line {number}\n".encode() for number in range(10)]
    for number, line in enumerate(lines[:6]):
        former.write(line, position=str(number + 1))
    server.take(former, limit=14)
    mark = former.mark()
    server.take(former, limit=14, lose_answer=True)

    assert mark == Mark(14, "2")
    following = LogStream("run", start=mark, replays=True)
    following.accepted(len(server.text))
    for number, line in enumerate(lines[int(mark.position) :]):
        following.write(line, position=str(number + 3))

    assert server.drain(following) == b"".join(lines).decode()


def test_a_mark_waits_for_what_is_held_back() -> None:
    stream = LogStream("run", ["hunter2!"])
    stream.write(b"some hun", position="1")

    stream.accepted(5)

    assert stream.mark() is None


def test_a_server_that_lost_text_is_told_so() -> None:
    stream, server = LogStream("run"), Server()
    stream.write(b"old\n")
    server.drain(stream)
    server.text = b""

    stream.write(b"new\n")
    stream.accepted(0)

    assert server.drain(stream) == "… earlier lines were lost by the server …\nnew\n"
