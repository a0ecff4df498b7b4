"""Everything a person reads exists in English and Japanese, and the compiled catalogue is the one in the repository."""

from __future__ import annotations

import ast
import gettext
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client
from django.utils.translation.template import templatize

from jobs.states import JobState
from spaces import words
from tests.spaces.repositories import make_space

CATALOGUE = Path(settings.BASE_DIR) / "locale" / "ja" / "LC_MESSAGES" / "django.po"
ROOMS = ("openface", "runtime_proxy", "workers", "spaces", "jobs")
MARKERS = {"_", "gettext", "gettext_lazy", "gettext_noop", "ngettext", "ngettext_lazy"}
MARKERS_IN_CONTEXT = {"pgettext", "pgettext_lazy"}


def read_catalogue() -> dict[str, str]:
    """Return what the .po file says, as gettext keys it. Written for this file's own plain form."""
    found: dict[str, str] = {}
    for block in CATALOGUE.read_text(encoding="utf-8").split("\n\n"):
        entry = {"msgctxt": "", "msgid": "", "msgid_plural": "", "msgstr": ""}
        part = ""
        for line in block.splitlines():
            if line.startswith("#"):
                continue
            match = re.match(r'(msgctxt|msgid_plural|msgid|msgstr)(?:\[0\])? (".*")$', line)
            if match:
                part, text = match[1], match[2]
            else:
                text = line
            entry[part] += ast.literal_eval(text)
        if entry["msgid"]:
            context = f"{entry['msgctxt']}\x04" if entry["msgctxt"] else ""
            found[context + entry["msgid"]] = entry["msgstr"]
    return found


def sentences_in_code() -> Iterator[tuple[str, str]]:
    for room in ROOMS:
        for file in sorted((Path(settings.BASE_DIR) / room).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                    continue
                constants = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
                values = [value for value in constants if isinstance(value, str)]
                if node.func.id in MARKERS and values:
                    yield values[0], f"{room}/{file.name}"
                elif node.func.id in MARKERS_IN_CONTEXT and len(values) >= 2:
                    yield f"{values[0]}\x04{values[1]}", f"{room}/{file.name}"


def sentences_in_templates() -> Iterator[tuple[str, str]]:
    for file in sorted((Path(settings.BASE_DIR) / "templates").rglob("*.html")):
        source = templatize(file.read_text(encoding="utf-8"))
        for call in re.finditer(
            r"\bn?gettext\((u?(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"))|(?<!\w)_\((u?\"(?:[^\"\\]|\\.)*\"|u?'(?:[^'\\]|\\.)*')\)",
            source,
        ):
            yield ast.literal_eval((call[1] or call[2]).lstrip("u")), file.name


def test_every_sentence_has_a_japanese_one() -> None:
    catalogue = read_catalogue()
    wanted = [*sentences_in_code(), *sentences_in_templates()]
    assert len(wanted) > 300, "the search itself has stopped to work"
    missing = sorted({f"{place}: {sentence}" for sentence, place in wanted if not catalogue.get(sentence)})
    assert missing == []


def test_the_compiled_catalogue_is_up_to_date() -> None:
    with CATALOGUE.with_suffix(".mo").open("rb") as file:
        compiled = gettext.GNUTranslations(file)
    stale = [msgid for msgid, text in read_catalogue().items() if _compiled(compiled, msgid) != text]
    assert stale == [], "compile it: python manage.py compilemessages -l ja"


def _compiled(compiled: gettext.GNUTranslations, msgid: str) -> str | None:
    entries: dict[object, str] = compiled._catalog  # type: ignore[attr-defined]  # the only place that has plurals too
    return entries.get(msgid, entries.get((msgid, 0)))


@pytest.mark.django_db
def test_a_visitor_can_switch_the_language_without_an_account(passer_by: Client) -> None:
    make_space("alice/notes")
    assert 'lang="en"' in passer_by.get("/").content.decode()
    answer = passer_by.post("/language/", {"language": "ja", "next": "/spaces/alice/notes/"})
    assert answer["Location"] == "/spaces/alice/notes/"
    page = passer_by.get("/spaces/alice/notes/").content.decode()
    assert '<html lang="ja">' in page
    assert "CPU · オンデマンド" in page
    assert "openface_session" not in passer_by.cookies


@pytest.mark.django_db
def test_a_browser_is_answered_in_its_language(passer_by: Client) -> None:
    assert '<html lang="ja">' in passer_by.get("/", headers={"accept-language": "ja,en;q=0.5"}).content.decode()


@pytest.mark.django_db
def test_the_switch_leads_to_no_other_site(passer_by: Client) -> None:
    answer = passer_by.post("/language/", {"language": "ja", "next": "https://evil.example/"})
    assert answer["Location"] == "/"


def test_every_state_has_a_word() -> None:
    assert set(words.STATE_NAMES) >= {state.value for state in JobState}
