"""Who may see and do what with a Space: the forge's answer, asked each time, never a copy of ours."""

from __future__ import annotations

from spaces.catalogue import readable_repositories, row_for, rows_for
from spaces.forge import get_forge
from spaces.forge.base import SYSTEM, Permission, Repository, User
from spaces.forge.errors import NotFound
from spaces.models import Space
from spaces.topics import is_runnable

__all__ = ["Permission", "any_space", "get_space", "permission", "visible_spaces"]


def permission(user: User, space: Space) -> Permission:
    """Return what `user` may do with the Space. NONE also where its repository is gone. One query."""
    forge = get_forge()
    try:
        return forge.get_repo_by_id(space.repository_id, viewer=forge.identity(user)).permission
    except NotFound:
        return Permission.NONE


def get_space(user: User, owner: str, name: str) -> Space:
    """Return the Space of that name, in any spelling of its case, as fresh as the forge knows it.

    Raises the forge's NotFound where it is missing, not yours, or a repository that nobody ever meant to run.
    """
    forge = get_forge()
    return _space_of(forge.get_repo(owner, name, viewer=forge.identity(user)))


def any_space(owner: str, name: str) -> Space:
    """Return the Space of that name for the command line: who may run commands may see all. Raises NotFound."""
    return _space_of(get_forge().get_repo(owner, name, viewer=SYSTEM))


def _space_of(repo: Repository) -> Space:
    # A Space whose topic was taken away keeps its page: it may be running.
    if not is_runnable(repo.topics) and not Space.objects.filter(repository_id=repo.id).exists():
        raise NotFound(f"{repo.full_name} is not a Space: its repository lacks the topic 'space'.")
    return row_for(repo)


def visible_spaces(user: User) -> list[Space]:
    """Return all Spaces that `user` may read, by owner and name. A handful of queries, however many there are."""
    return rows_for(readable_repositories(get_forge().identity(user)))
