"""Addresses that lead to the proper one, asked of the processes and a container."""

from __future__ import annotations

from collections.abc import Callable

from tests.runtime_proxy.data_plane import DataPlane
from tests.runtime_proxy.test_escaping import (
    test_our_own_pages_on_that_origin_keep_their_files as test_our_own_pages_on_that_origin_keep_their_files,
)
from tests.runtime_proxy.test_escaping import (
    test_what_a_page_of_an_app_asks_for_is_its_own as test_what_a_page_of_an_app_asks_for_is_its_own,
)
from tests.runtime_proxy.test_escaping import (
    test_without_a_page_of_an_app_nothing_is_guessed as test_without_a_page_of_an_app_nothing_is_guessed,
)
from tests.runtime_proxy.test_states import (
    test_the_prefix_without_a_slash_leads_to_the_one_with as test_the_prefix_without_a_slash_leads_to_the_one_with,
)


def test_names_lead_to_their_canonical_case(data_plane: DataPlane, run_space: Callable[..., None]):
    run_space()

    answer = data_plane.get("/run/ALICE/App/x%2Fy//?q", method="POST", body=b"x")

    assert (answer.status, answer.one("location")) == (308, "/run/alice/app/x%2Fy//?q")
