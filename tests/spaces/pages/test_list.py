"""The list shows what the visitor may open, narrowed as he asks, with a line that says what matters most."""

from __future__ import annotations

import pytest
from django.test import Client

from spaces import cards
from spaces.models import LocalRepository
from tests.spaces.pages import runs
from tests.spaces.repositories import README, make_space
from workers.models import Worker

pytestmark = pytest.mark.django_db


def shown(client: Client, query: str = "") -> set[str]:
    answer = client.get(f"/spaces/{query}")
    assert answer.status_code == 200
    return {str(card.space) for card in answer.context["cards"]}


@pytest.fixture(autouse=True)
def town(worker: Worker) -> None:
    running = make_space("alice/notes", topics=("space", "speech"))
    runs.submit(running)
    runs.claim(worker).to_running()
    make_space("alice/atelier", topics=("space", "gpu"), files={"README.md": README.replace("A title", "Flux Atelier")})
    queued = make_space("dora/desk", topics=("space",))
    runs.submit(queued)


def test_everything_by_default(carol: Client) -> None:
    assert shown(carol) == {"alice/notes", "alice/atelier", "dora/desk"}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?state=running", {"alice/notes"}),
        ("?state=queued", {"dora/desk"}),
        ("?state=idle", {"alice/atelier"}),
        ("?topic=speech", {"alice/notes"}),
        ("?q=flux", {"alice/atelier"}),
        ("?q=ALICE", {"alice/notes", "alice/atelier"}),
        ("?q=alice+speech", {"alice/notes"}),
        ("?state=nonsense", set()),
        ("?q=%00", set()),
    ],
)
def test_filters_and_words_narrow_it(carol: Client, query: str, expected: set[str]) -> None:
    assert shown(carol, query) == expected


def test_mine_are_those_of_my_name(alice: Client, carol: Client) -> None:
    assert shown(alice, "?mine=1") == {"alice/notes", "alice/atelier"}
    assert shown(carol, "?mine=1") == set()


def test_cards_say_kind_and_state(carol: Client) -> None:
    page = carol.get("/").content.decode()
    for text in ("CPU · Running", "GPU · On demand", "CPU · Queued", "cpu1 · up", "1st in line"):
        assert text in page


def test_a_search_that_finds_nothing_offers_a_way_out(carol: Client) -> None:
    assert "Show all" in carol.get("/spaces/?q=nothing+like+this").content.decode()


def test_the_list_costs_the_same_for_many(carol: Client, django_assert_max_num_queries) -> None:
    for number in range(30):
        runs.submit(make_space(f"erin/space{number}"))
    carol.get("/")
    with django_assert_max_num_queries(25):
        carol.get("/")


def test_an_empty_portal_says_what_to_do(passer_by: Client) -> None:
    LocalRepository.objects.update(visibility="private")
    page = passer_by.get("/").content.decode()
    assert "issue_enrollment_token" in page
    assert "import_space" in page


def test_a_card_says_in_few_words_why_its_space_waits(carol: Client, worker: Worker) -> None:
    Worker.objects.filter(pk=worker.pk).update(scheduling="draining")

    page = carol.get("/").content.decode()

    assert "1st in line · cpu1 is draining" in page


def test_in_a_fleet_too_large_to_judge_a_card_says_the_place_alone(
    carol: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cards, "JUDGEMENTS_MAX", 0)

    (line,) = [card.line for card in carol.get("/").context["cards"] if card.group == "queued"]

    assert line == "1st in line"
