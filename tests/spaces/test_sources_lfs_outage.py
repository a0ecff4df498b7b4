"""A network that breaks while models come in costs the rest of a download, not the job; for ever, it is a sentence."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from gpu_worker import outages
from spaces.forge.local_writes import find_repository
from tests.spaces.cutting_relay import CuttingRelay
from tests.spaces.git_server import Claimed
from tests.spaces.worker_sources import ATTRIBUTES, claim_of, fetch, keep_lfs, pointer_to, refusal

pytestmark = pytest.mark.django_db(transaction=True)

MODEL = random.Random(4).randbytes(3_000_000)
A_PIECE = 400_000  # bytes that pass before each cut; nothing else that is asked for is so long


@pytest.fixture
def mine(app: Callable[..., Claimed]) -> Claimed:
    mine = app(**{"__gitattributes": ATTRIBUTES, "a.bin": pointer_to(MODEL)})
    keep_lfs(find_repository("alice", "app"), MODEL)
    return mine


def test_a_download_that_breaks_off_again_and_again_goes_on_from_where_it_was(
    server: str, mine: Claimed, tmp_path: Path
) -> None:
    with CuttingRelay(server, bytes_each=A_PIECE, times=6) as relay:  # git-lfs itself gives up after the third
        log = fetch(claim_of(mine, relay.url), tmp_path / "source")

    assert (tmp_path / "source/a.bin").read_bytes() == MODEL
    assert relay.cuts == 6
    assert relay.passed < len(MODEL) + 2 * A_PIECE  # begun anew each time it would have been twice as much
    assert "The control plane does not answer; trying again." in log


def test_one_that_breaks_off_for_longer_than_it_is_waited_for_says_so(
    server: str, mine: Claimed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outages, "OUTAGE_SECONDS", 0.0)

    with CuttingRelay(server, bytes_each=100_000, times=1_000_000) as relay:
        told = refusal(claim_of(mine, relay.url), tmp_path / "source")

    assert told == (
        "source_failed",
        "a.bin could not be fetched from Git LFS: the connection to the control plane broke off again and again.",
    )
    assert relay.cuts > 1


def test_patience_begins_anew_with_what_arrived(
    server: str, mine: Claimed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A download of hours has more than one outage in it."""
    monkeypatch.setattr(outages, "OUTAGE_SECONDS", 0.1)  # less than one try and its pause take

    with CuttingRelay(server, bytes_each=A_PIECE, times=6) as relay:
        fetch(claim_of(mine, relay.url), tmp_path / "source")

    assert (tmp_path / "source/a.bin").read_bytes() == MODEL
