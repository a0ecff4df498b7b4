"""Frames between a browser and an app: as they were sent, while they are sent, and with the ends that were meant."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator

import pytest

from jobs.models import Job
from runtime_proxy import sockets
from runtime_proxy.close_codes import BAD_GATEWAY, GOING_AWAY
from runtime_proxy.frames import BINARY, CLOSE, PING, PONG, TEXT, close_frame, control_frame
from tests.runtime_proxy.data_plane import DataPlane, settled, until
from tests.runtime_proxy.raw_sockets import RawApp, RawBrowser, closing, frame, pong
from tests.runtime_proxy.raw_sockets import app as app

MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """For answers to closes: these apps and browsers say only what a test has them say."""
    monkeypatch.setattr(sockets, "CLOSE_SECONDS", 0.3)


@pytest.fixture
def browser(data_plane: DataPlane, run_space: Callable[..., Job], app: RawApp) -> Iterator[RawBrowser]:
    """An open WebSocket to the app."""
    run_space(port=app.port)
    with RawBrowser(data_plane) as browser:
        assert browser.status == 101
        yield browser


def close_code(raw: bytes | bytearray) -> int | None:
    """The code of a masked close frame that stands at the beginning; None where it has none."""
    assert raw[0] == 0x80 | CLOSE, raw[:20]
    assert raw[1] & 0x80, "not masked"
    if raw[1] == 0x80:
        return None
    return int.from_bytes(bytes(byte ^ key for byte, key in zip(raw[6:8], raw[2:6], strict=False)), "big")


class TestPassing:
    def test_frames_arrive_as_they_were_sent(self, browser: RawBrowser, app: RawApp):
        there = frame(TEXT, "héllo".encode(), masked=True) + frame(BINARY, bytes(300), masked=True, fin=False)
        there += frame(0, b"", masked=True)
        back = frame(BINARY, b"\x00\xff", masked=False, fin=False) + frame(0, bytes(70_000), masked=False)

        browser.say(there)
        until(lambda: app.got == there)
        app.say(back)

        assert browser.hear(len(back)) == back

    def test_a_frame_is_passed_on_while_it_is_sent(self, browser: RawBrowser, app: RawApp):
        whole = frame(BINARY, bytes(8 * MIB), masked=True)

        browser.say(whole[: 4 * MIB])
        until(lambda: app.received == 4 * MIB)
        browser.say(whole[4 * MIB :])
        until(lambda: app.received == len(whole))

        assert app.got == whole

    def test_what_follows_the_handshake_at_once_is_not_lost(
        self, data_plane: DataPlane, run_space: Callable[..., Job], app: RawApp
    ):
        run_space(port=app.port)
        hurried, greeting = frame(TEXT, b"early", masked=True), frame(TEXT, b"welcome", masked=False)
        accept = app.accept
        app.accept = lambda head: accept(head) + greeting

        with RawBrowser(data_plane, early=hurried) as browser:
            assert browser.hear(len(greeting)) == greeting
            until(lambda: app.got == hurried)

    def test_a_message_above_the_limit_is_refused_by_its_head(self, browser: RawBrowser, app: RawApp):
        app.keeps = False
        limit = 64 * MIB
        browser.say(b"\x02\xff" + limit.to_bytes(8, "big"))
        until(lambda: app.received == 10)

        browser.say(b"abcd")
        for _ in range(64):
            browser.say(bytes(MIB))
        browser.say(b"\x80\x81abcdX")

        assert browser.hear(2 + 2)[2:] == (1009).to_bytes(2, "big")
        app.say(closing(GOING_AWAY, masked=False))
        until(lambda: app.ended)


class TestControls:
    def test_pings_are_answered_on_their_own_hop(self, browser: RawBrowser, app: RawApp):
        message = frame(TEXT, b"after", masked=True)

        browser.say(frame(PING, b"mine", masked=True) + frame(PONG, b"unasked", masked=True) + message)
        assert browser.hear(6) == frame(PONG, b"mine", masked=False)
        until(lambda: app.got == message)

        app.say(frame(PING, b"yours", masked=False) + frame(PONG, masked=False) + frame(TEXT, b"x", masked=False))
        assert browser.hear(3) == frame(TEXT, b"x", masked=False)
        until(lambda: len(app.got) == len(message) + 11)
        assert re.fullmatch(rb"(?s)\x8a\x85.{9}", app.got[len(message) :])

    def test_an_answer_waits_for_the_end_of_a_frame(self, browser: RawBrowser, app: RawApp):
        long = frame(BINARY, bytes(1000), masked=False)
        app.say(long[:500])
        assert browser.hear(500) == long[:500]

        browser.say(frame(PING, b"1", masked=True) + frame(PING, b"2", masked=True) + frame(TEXT, b"go", masked=True))
        until(lambda: app.got == frame(TEXT, b"go", masked=True))
        app.say(long[500:])

        # The last ping is the one that must be answered (RFC 6455 §5.5.3).
        assert browser.hear(len(long) - 500 + 3) == long[500:] + frame(PONG, b"2", masked=False)

    def test_both_lines_are_kept_open(
        self, monkeypatch: pytest.MonkeyPatch, data_plane: DataPlane, run_space: Callable[..., Job], app: RawApp
    ):
        monkeypatch.setattr(sockets, "PING_SECONDS", 0.1)
        run_space(port=app.port)

        with RawBrowser(data_plane) as browser:
            for _ in range(6):
                assert browser.hear(2) == frame(PING, masked=False)
                browser.say(pong())
            # It answered none of its own: it may be computing.
            until(lambda: len(app.got) >= 6 * 6)
            assert re.match(rb"(?s)(?:\x89\x80....){6}", app.got)
            assert app.is_open

    def test_a_browser_that_says_nothing_to_three_pings_is_given_up(
        self, monkeypatch: pytest.MonkeyPatch, data_plane: DataPlane, run_space: Callable[..., Job], app: RawApp
    ):
        monkeypatch.setattr(sockets, "PING_SECONDS", 0.1)
        run_space(port=app.port)

        with RawBrowser(data_plane) as browser:
            heard = browser.hear_all()

        assert heard == frame(PING, masked=False) * 3
        until(lambda: app.ended)
        assert close_code(app.got[-8:]) == GOING_AWAY

    def test_who_cannot_be_sent_to_is_not_taken_for_gone(
        self, monkeypatch: pytest.MonkeyPatch, data_plane: DataPlane, run_space: Callable[..., Job], app: RawApp
    ):
        asked = count_pings(monkeypatch)
        run_space(port=app.port)
        message = frame(BINARY, bytes(32 * MIB), masked=False)

        with RawBrowser(data_plane) as browser:
            app.say(message)
            held_at = settled(app.waits_to_send)  # it does not read
            before = len(asked)
            until(lambda: len(asked) > before + 12)  # six rounds: two legs, or one where the first is given up

            assert app.waits_to_send() == held_at
            first = browser.hear(2)
            while first == frame(PING, masked=False):  # it was asked before the message began
                first = browser.hear(2)
            assert first + browser.hear(len(message) - 2) == message

    def test_who_is_not_read_is_not_taken_for_gone(
        self, monkeypatch: pytest.MonkeyPatch, data_plane: DataPlane, run_space: Callable[..., Job], app: RawApp
    ):
        asked = count_pings(monkeypatch)
        run_space(port=app.port)
        app.keeps = False
        sent = 0

        def send(browser: RawBrowser) -> None:
            nonlocal sent
            for _ in range(64):
                browser.say(frame(BINARY, bytes(MIB), masked=True))
                sent += 1

        with RawBrowser(data_plane) as browser:
            app.stop_reading()
            sender = threading.Thread(target=send, args=(browser,))
            sender.start()
            held_at = settled(lambda: sent)
            before = len(asked)
            until(lambda: len(asked) > before + 12)
            app.read_on()
            sender.join(30)

            until(lambda: app.received >= 64 * (MIB + 14))
            assert held_at < 64
            assert app.is_open


def count_pings(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Let pings be due every 50 ms; the list grows whenever a side is asked whether it is there."""
    asked: list[None] = []
    is_deaf = sockets.Leg.is_deaf

    def counted(leg: sockets.Leg) -> bool:
        asked.append(None)
        return is_deaf(leg)

    monkeypatch.setattr(sockets, "PING_SECONDS", 0.05)
    monkeypatch.setattr(sockets.Leg, "is_deaf", counted)
    return asked


class TestEnds:
    @pytest.mark.parametrize(
        ("said", "told"),
        [(None, 1000), (1000, 1000), (1005, 1014), (1006, 1014), (999, 1014), (1015, 1014), (2999, 1014), (4001, 4001)],
    )
    def test_a_code_that_may_not_be_sent_is_not(self, browser: RawBrowser, app: RawApp, said: int | None, told: int):
        app.say(closing(said, masked=False))

        assert browser.hear(4) == closing(told, masked=False)
        browser.say(closing(told, masked=True))
        assert browser.hear_all() == b""
        until(lambda: app.ended)
        assert close_code(app.got) == told

    @pytest.mark.parametrize(("said", "told"), [(None, 1000), (1001, 1001), (1006, 1001), (4999, 4999)])
    def test_the_app_is_told_likewise(self, browser: RawBrowser, app: RawApp, said: int | None, told: int):
        browser.say(closing(said, masked=True))

        until(lambda: len(app.got) == 8)
        assert close_code(app.got) == told
        app.say(closing(told, b"bye", masked=False))
        assert browser.hear_all() == closing(told, b"bye", masked=False)

    @pytest.mark.inside
    def test_a_side_that_never_answers_a_close_is_not_waited_for_for_ever(self, browser: RawBrowser, app: RawApp):
        browser.say(closing(1000, masked=True))

        assert browser.hear_all() == closing(1000, masked=False)
        until(lambda: not app.is_open)

    def test_an_app_that_breaks_off_between_frames_is_told_of(self, browser: RawBrowser, app: RawApp):
        app.vanish()

        assert browser.hear(4)[2:] == BAD_GATEWAY.to_bytes(2, "big")
        assert browser.hear(27) == b"The app's connection broke."

    def test_an_app_that_breaks_off_within_a_frame_breaks_the_connection(self, browser: RawBrowser, app: RawApp):
        long = frame(BINARY, bytes(1000), masked=False)
        app.say(long[:500])
        assert browser.hear(500) == long[:500]

        app.vanish()

        assert browser.hear_all() == b""

    def test_a_browser_that_vanishes_is_told_of(self, browser: RawBrowser, app: RawApp):
        browser.vanish()

        until(lambda: len(app.got) == 8)
        assert close_code(app.got) == GOING_AWAY
        app.say(closing(GOING_AWAY, masked=False))
        until(lambda: app.ended)

    def test_a_browser_that_breaks_the_protocol_is_told_so(self, browser: RawBrowser, app: RawApp):
        browser.say(frame(TEXT, b"unmasked", masked=False))

        heard = browser.hear_all()
        assert heard[2:4] == (1002).to_bytes(2, "big")
        until(lambda: len(app.got) == 8)
        assert close_code(app.got) == GOING_AWAY
        app.say(closing(GOING_AWAY, masked=False))
        until(lambda: app.ended)

    def test_an_app_that_breaks_the_protocol_is_told_so(self, browser: RawBrowser, app: RawApp):
        app.say(frame(TEXT, b"masked", masked=True))

        assert browser.hear(4)[2:] == (1002).to_bytes(2, "big")
        browser.close()
        until(lambda: app.ended)
        assert close_code(app.got) == 1002

    @pytest.mark.inside
    def test_a_server_that_stops_says_so(self, browser: RawBrowser, app: RawApp, data_plane: DataPlane):
        data_plane.stop()

        assert browser.hear(4)[2:] == (1012).to_bytes(2, "big")
        until(lambda: len(app.got) >= 8)
        assert close_code(app.got) == GOING_AWAY

    @pytest.mark.inside
    def test_our_frames_are_well_formed(self):
        assert control_frame(PING, masked=False) == frame(PING, masked=False)
        assert close_frame(4403, "no", masked=False) == closing(4403, b"no", masked=False)
