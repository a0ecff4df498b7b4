"""Where a repository's submodules come from: other repositories of the same control plane, and nowhere else.

A relative address (``../library.git``) keeps its meaning wherever the repository is served, so it is resolved against
the address that the source came from. Anything that leads away from there is refused: the token must not go elsewhere,
and neither should a build depend on a machine that the control plane's operator did not choose.
"""

from __future__ import annotations

import os
import posixpath
import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from gpu_worker.errors import JobFailed
from gpu_worker.git import Git
from gpu_worker.source_limits import Gitlink
from gpu_worker.tree_names import shown

DEEPEST = 5  # submodules of submodules; one that contains itself goes on for ever
MOST = 100  # of one job
_NAME = re.compile(r"[\w.-]{1,100}\Z", re.ASCII)
_KEY = re.compile(r"submodule\.(?P<name>.*)\.(?P<key>[a-z]+)\Z", re.DOTALL)


@dataclass(frozen=True)
class Submodule:
    path: str
    revision: str
    address: str
    """Where it is fetched from."""
    full_name: str
    """``owner/repo``, for people."""


def submodules_of(git: Git, revision: str, links: list[Gitlink]) -> list[Submodule]:
    """The submodules of a commit, ready to be fetched. Raises JobFailed (``submodule_refused``) naming the first bad.

    A link without an address is left empty with a line in the log: it is what a repository added by mistake looks like,
    and git itself leaves it empty.
    """
    if not links:
        return []
    entries = {entry.get("path"): entry for entry in _entries(git, revision)}
    wanted, empty = [], []
    for link in links:
        entry = entries.get(link.path, {})
        if entry.get("update") == "none":
            empty.append(f"The submodule {shown(link.path)} stays empty, as .gitmodules says (update = none).")
        elif "url" not in entry:
            empty.append(f"The submodule {shown(link.path)} stays empty: .gitmodules has no address for it.")
        else:
            wanted.append(_submodule(git.access.address, link, entry["url"]))
    git.say_each(empty)
    return wanted


def _submodule(base: str, link: Gitlink, url: str) -> Submodule:
    address = resolve(base, url)
    if address is None:
        raise JobFailed(
            "submodule_refused",
            f"The submodule {shown(link.path)} comes from {_shown(url)}, which is no repository of this server. "
            "Only those can be submodules here, by a relative address like ../library.git.",
        )
    full_name = "/".join(unquote(part) for part in address.removesuffix(".git").rsplit("/", 2)[1:])
    return Submodule(link.path, link.revision, address, full_name)


def resolve(base: str, url: str) -> str | None:
    """The address of the repository that *url* means in a repository fetched from *base*; None: not on this server.

    *base* and the result look like ``http://host:8091/git/owner/repo.git``.
    """
    root, owner, name = base.rstrip("/").rsplit("/", 2)
    if url.startswith(("./", "../")):
        path = posixpath.normpath(posixpath.join("/", owner, name, url))
        # normpath stops at the root; a path that climbs above it must not come out as one inside
        if _climbs(f"{owner}/{name}/{url}"):
            return None
    elif url.startswith(root + "/"):
        path = url.removeprefix(root)
    else:
        return None
    parts = path.strip("/").removesuffix(".git").split("/")
    if len(parts) != 2 or not all(_NAME.match(part) and part.strip(".") for part in parts):
        return None
    return f"{root}/{parts[0]}/{parts[1]}.git"


def _climbs(path: str) -> bool:
    depth = 0
    for part in path.split("/"):
        depth += {"..": -1, ".": 0, "": 0}.get(part, 1)
        if depth < 0:
            return True
    return False


def _entries(git: Git, revision: str) -> list[dict[str, str]]:
    """What .gitmodules of the commit says; read from the commit, so that a link in the tree changes nothing."""
    heard = git.answer("config", "--blob", f"{revision}:.gitmodules", "--null", "--list")
    entries: dict[str, dict[str, str]] = {}
    for line in os.fsdecode(heard or b"").split("\0"):
        key, _, value = line.partition("\n")
        match = _KEY.match(key)
        if match is not None:
            entries.setdefault(match["name"], {})[match["key"]] = value
    return list(entries.values())


def _shown(url: str) -> str:
    """The address without what may be a password."""
    try:
        parts = urlsplit(url)
        if not parts.netloc:
            return shown(url)
        return shown(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl())
    except ValueError:
        return "an address that cannot be read"
