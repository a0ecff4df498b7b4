"""The path of a result inside its job: what a worker may name, in a form that is safe wherever it is shown or saved.

Pure. A path never becomes a path on our disk: files there are named by the row's id (`artifact_store.py`).
"""

from __future__ import annotations

import unicodedata

# The index over (lease, path) takes no longer ones, and file systems no longer names.
MAX_PATH_BYTES = 1024
MAX_NAME_BYTES = 255

_FORBIDDEN_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})  # control characters, lone surrogates, line separators

# They turn text around or show nothing, so that a name looks like another one; the joiners are letters' own.
_DECEIVING_CATEGORY = "Cf"
_JOINERS = "\u200c\u200d"


def problem_of(path: str) -> str:
    """Return what is wrong with a path, as a sentence; empty for a good one. Case and Unicode form stay as given."""
    if not path:
        return "The path is empty."
    if any(unicodedata.category(character) in _FORBIDDEN_CATEGORIES for character in path):
        return "The path has control characters, or is not UTF-8."
    if "\\" in path:
        return "The path has a backslash."
    if len(path.encode("utf-8")) > MAX_PATH_BYTES:
        return f"The path is longer than {MAX_PATH_BYTES} bytes."
    names = path.split("/")
    if any(name in ("", ".", "..") for name in names):
        return "The path is absolute, or has an empty part, '.' or '..'."
    if any(len(name.encode("utf-8")) > MAX_NAME_BYTES for name in names):
        return f"A name in the path is longer than {MAX_NAME_BYTES} bytes."
    return ""


def name_to_save(path: str) -> str:
    """Return the name under which a result is saved: its own, with "_" for what makes it look like another."""
    name = path.rpartition("/")[2]
    return "".join(
        "_" if unicodedata.category(one) == _DECEIVING_CATEGORY and one not in _JOINERS else one for one in name
    )
