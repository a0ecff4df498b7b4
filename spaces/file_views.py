"""The Files tab: README, tree and files of the repository at one commit, with the repository's permission."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_safe

from spaces import file_paths, readme
from spaces.forge import get_forge
from spaces.forge.base import Commit, Repository, TreeEntry
from spaces.forge.errors import EmptyRepository, NotFound, TooLarge
from spaces.space_page import SpacePage, page_context, space_view

TEXT_BYTES = 256 * 1024  # longer files are a download, not a page
RAW_BYTES = 64 * 1024 * 1024
IMAGE_TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True)
class Text:
    """A file as it is shown: its lines, or why there are none."""

    lines: list[str]
    problem: str = ""  # "binary" or "large"


@require_safe
@space_view
def tree(request: HttpRequest, page: SpacePage, path: str = "") -> HttpResponseBase:
    """Show a directory with its README, or a file as text."""
    forge = get_forge()
    repo = _repository(request, page)
    path = _clean(path)
    try:
        commit = _commit(repo, request.GET.get("at", "") or page.revision)
    except EmptyRepository:
        return render(request, "spaces/files.html", page_context(page, "files", commit=None))
    context: dict[str, Any] = page_context(page, "files", commit=commit, path=path, crumbs=_crumbs(path))
    try:
        entries = forge.list_tree(repo, commit.sha, path)
    except NotFound:
        context["text"] = _text(repo, commit, path)
        return render(request, "spaces/file.html", context)
    except TooLarge:
        entries = []
        context["too_many"] = True
    context["entries"] = [(entry, file_paths.is_linkable(entry.path)) for entry in entries]
    context["readme"] = _readme(repo, commit, entries)
    return render(request, "spaces/files.html", context)


@require_safe
@space_view
def raw(request: HttpRequest, page: SpacePage, revision: str, path: str) -> HttpResponseBase:
    """Hand out a file's bytes. It is somebody's content on our origin: never a document, never a script."""
    repo = _repository(request, page)
    path = _clean(path)
    try:
        commit = get_forge().get_commit(repo, revision)
        content = get_forge().read_file(repo, commit.sha, path, limit=RAW_BYTES)
    except (NotFound, EmptyRepository):
        raise Http404("There is no such file.") from None
    except TooLarge:
        return HttpResponse("This file is too large to be handed out here.", status=413, content_type="text/plain")
    kind = IMAGE_TYPES.get(posixpath.splitext(path)[1].lower(), "application/octet-stream")
    answer = HttpResponse(content, content_type=kind)
    answer["Content-Disposition"] = "attachment"
    answer["X-Content-Type-Options"] = "nosniff"
    answer["Content-Security-Policy"] = "sandbox; default-src 'none'"
    answer["Cache-Control"] = "private, max-age=3600"
    return answer


def _repository(request: HttpRequest, page: SpacePage) -> Repository:
    forge = get_forge()
    try:
        return forge.get_repo_by_id(page.space.repository_id, viewer=forge.identity(request.user))
    except NotFound:
        raise Http404("There is no such repository.") from None


def _commit(repo: Repository, revision: str) -> Commit:
    """Return the commit that the page shows. One that no branch or tag contains is not shown to anybody."""
    try:
        return get_forge().get_commit(repo, revision) if revision else get_forge().head(repo)
    except NotFound:
        raise Http404("There is no such commit.") from None


def _clean(path: str) -> str:
    """Return a path inside the repository; one that is written so as to lead out of it is not found."""
    inside = file_paths.clean(path)
    if inside is None:
        raise Http404("There is no such file.")
    return inside


def _crumbs(path: str) -> list[tuple[str, str]]:
    parts = path.split("/") if path else []
    return [(part, "/".join(parts[: number + 1])) for number, part in enumerate(parts)]


def _text(repo: Repository, commit: Commit, path: str) -> Text:
    try:
        content = get_forge().read_file(repo, commit.sha, path, limit=TEXT_BYTES)
    except NotFound:
        raise Http404("There is no such file.") from None
    except TooLarge:
        return Text([], problem="large")
    if b"\x00" in content:
        return Text([], problem="binary")
    return Text(content.decode("utf-8", "replace").splitlines())


def _readme(repo: Repository, commit: Commit, entries: list[TreeEntry]) -> readme.Readme | None:
    found = next((entry for entry in entries if entry.kind == "file" and entry.name.lower() == "readme.md"), None)
    return None if found is None else readme.read(repo, commit.sha, found.path)
