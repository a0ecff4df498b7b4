"""What the control plane has of a repository's Git LFS objects: the sizes that pointers tell are claims until then.

One call of git-lfs's batch API for every hundred objects, as git-lfs itself makes it before a download.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import requests

from gpu_worker.errors import JobFailed, WireError
from gpu_worker.git import Access, Surroundings
from gpu_worker.http_answers import explain, json_of
from gpu_worker.outages import Patience
from gpu_worker.protocol import Fields

AT_ONCE = 100  # objects
CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS = 5.0, 20.0
PASSING_STATUSES = frozenset({429, 500, 502, 503, 504})
GONE = frozenset({404, 410})  # what the batch API says of an object that is not there


def sizes_on_server(access: Access, around: Surroundings, told: Mapping[str, int]) -> dict[str, int]:
    """The sizes in bytes of those objects that the server has; *told*: what their pointers say.

    A control plane that is away is waited for. Raises JobInterrupted, or JobFailed (``source_failed``).
    """
    sizes: dict[str, int] = {}
    oids = sorted(told)
    with requests.Session() as session:
        for start in range(0, len(oids), AT_ONCE):
            some = {oid: told[oid] for oid in oids[start : start + AT_ONCE]}
            sizes |= _known(_ask(session, access, around, some))
    return sizes


def _ask(session: requests.Session, access: Access, around: Surroundings, told: Mapping[str, int]) -> object:
    patience = Patience(around.output, around.cancel)
    while True:
        try:
            response = session.post(
                f"{access.address}/info/lfs/objects/batch",
                json={
                    "operation": "download",
                    "transfers": ["basic"],
                    "objects": [{"oid": oid, "size": size} for oid, size in told.items()],
                },
                headers={"Accept": "application/vnd.git-lfs+json", "Content-Type": "application/vnd.git-lfs+json"},
                auth=(access.user, access.token),
                verify=str(around.verify_tls) if isinstance(around.verify_tls, Path) else around.verify_tls,
                allow_redirects=False,
                timeout=(CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS),
            )
        except requests.RequestException as problem:
            trouble = explain(problem)
        else:
            if response.status_code == 200:
                return _content(response)
            trouble = f"HTTP {response.status_code}"
            if response.status_code not in PASSING_STATUSES:
                raise _failure(trouble)
        if not patience.again():
            raise _failure(trouble)


def _content(response: requests.Response) -> object:
    try:
        return json_of(response)
    except WireError as problem:
        raise _failure(str(problem)) from problem


def _known(answer: object) -> dict[str, int]:
    """Sizes by object. An object that is refused for another reason than that it is gone is one that is there."""
    try:
        objects = Fields(answer, "Git LFS answer").objects("objects")
        return {one.text("oid"): one.integer("size") for one in objects if not _is_gone(one)}
    except WireError as problem:
        raise _failure(str(problem)) from problem


def _is_gone(one: Fields) -> bool:
    return one.raw("error") is not None and one.nested("error").integer("code") in GONE


def _failure(trouble: str) -> JobFailed:
    return JobFailed("source_failed", f"The control plane did not say which Git LFS objects it has: {trouble}")
