"""A log stream is text with byte offsets: what is stored is what was written, whatever is lost on the way."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpu_worker.log_shipping import BACKLOG_BYTES, LAST_CHARACTERS, LATE_BYTES, LogStream, Mark, RateLimit


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


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # machines are busy with other things
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


def test_of_what_is_too_much_the_newest_is_kept_with_a_line_that_says_what_is_not() -> None:
    now = [0.0]
    rate = RateLimit(per_second=1000, burst=100_000, clock=lambda: now[0])
    stream, server = LogStream("run", rate=rate), Server()

    for letter in b"abcde":
        stream.write(bytes([letter]) * 50_000)
    now[0] += 100
    stream.write(b"calm again\n")

    shown = server.drain(stream)
    kept = LATE_BYTES - 50_000
    assert (
        shown
        == "a" * 50_000
        + "b" * 50_000
        + f"\n… {100_000 - kept} bytes dropped …\n"
        + "d" * kept
        + "e" * 50_000
        + ("calm again\n")
    )


def test_what_is_late_passes_as_soon_as_there_is_room_though_nothing_more_is_written() -> None:
    now = [0.0]
    stream = LogStream("run", rate=RateLimit(per_second=100, burst=100, clock=lambda: now[0]))
    stream.write(b"x" * 100)
    stream.write(b"then silence\n")
    server = Server()

    assert server.drain(stream) == "x" * 100
    assert stream.backlog, "it is not delivered yet"
    now[0] += 1
    assert server.drain(stream) == "x" * 100 + "then silence\n"


def test_the_end_of_a_flood_is_its_last_line() -> None:
    stream, server = LogStream("run", rate=RateLimit(per_second=1, burst=100_000, clock=lambda: 0.0)), Server()
    for number in range(50_000):
        stream.write(f"line {number}\n".encode())
    stream.write(b"Error: the reason\n")
    stream.end()

    assert server.drain(stream).endswith("line 49999\nError: the reason\n")
    assert "bytes dropped" in server.text.decode()


def test_the_last_text_is_masked_also_where_it_was_cut_within_a_secret() -> None:
    stream = LogStream("run", ["0123456789" * 60])
    stream.write(b"x" * 5000 + b"0123456789" * 60 + b"." * (LAST_CHARACTERS - 300))
    stream.end()

    assert "0123456789" not in stream.last
    assert stream.last.endswith("***" + "." * (LAST_CHARACTERS - 300))


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


def test_a_secret_that_a_gap_has_cut_is_shown_neither_before_nor_behind_it() -> None:
    secret = "0123456789abcdefghij"
    stream, server = LogStream("run", [secret]), Server()

    stream.write(b"key: " + secret[:12].encode())
    stream.remark("\n… skipped …\n".encode())
    stream.write(secret[8:].encode() + b" and more\nthe next line\n")
    stream.end()

    assert server.drain(stream) == "key: ***\n… skipped …\nthe next line\n"


def test_a_restart_right_behind_a_gap_shows_no_more_of_a_secret() -> None:
    secret = "0123456789abcdefghij"
    stream, server = LogStream("run", [secret], replays=True), Server()
    stream.remark("\n… skipped …\n".encode(), position="here")
    server.drain(stream)
    mark = stream.mark()
    assert mark is not None

    after = LogStream("run", [secret], start=mark, replays=True)
    after.write(secret[8:].encode() + b" and more\nthe next line\n", position="there")
    after.end()

    assert server.drain(after).endswith("… skipped …\nthe next line\n")
    settled = after.mark()
    assert settled is not None
    assert not settled.after_gap


def test_behind_a_gap_no_more_of_a_long_line_is_lost_than_a_secret_could_be() -> None:
    secret = "0123456789abcdefghij"
    stream, server = LogStream("run", [secret]), Server()

    stream.remark("\n… skipped …\n".encode())
    for _ in range(30):
        stream.write(b"." * 10)
    stream.end()

    shown = server.drain(stream).removeprefix("\n… skipped …\n")
    assert 300 - 2 * len(secret) <= len(shown) < 300
