"""What a repository without a Dockerfile asks for, by its README's keys and the files beside it.

The keys and files are Hugging Face's: `sdk`, `sdk_version`, `python_version`, `app_file`; requirements.txt,
pre-requirements.txt, packages.txt. Both executors go by the same plan. Everything in it is checked: it can stand in a
Dockerfile or on a command line as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from gpu_worker.errors import JobFailed
from gpu_worker.protocol import Claim
from gpu_worker.within import is_within

PRE_REQUIREMENTS, REQUIREMENTS, SYSTEM_PACKAGES = "pre-requirements.txt", "requirements.txt", "packages.txt"
FILE_LIMIT_BYTES = 1024 * 1024  # of each of these files
LONGEST_LINE = 2048  # characters; matching a longer one could take hours, in which nothing else of the worker runs

_DEFAULT_FILES = {"gradio": "app.py", "streamlit": "app.py", "static": "index.html"}
_PYTHON = re.compile(r"3\.\d{1,2}(?:\.\d{1,3})?", re.ASCII)
# PEP 440, without epochs and local labels, which no index gives out.
_RELEASE = re.compile(r"\d{1,6}(?:\.\d{1,6}){0,4}(?:(?:a|b|rc)\d{1,6})?(?:\.post\d{1,6})?(?:\.dev\d{1,6})?", re.ASCII)
# A Debian package, with an architecture, a version or a release where one is named.
_SYSTEM_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]{1,127}(?::[a-z0-9-]{1,32})?(?:[=/][\w.+:~-]{1,128})?", re.ASCII)
# Lines of a requirements file that name nothing beside it. Whatever is not certainly one of them counts as a file.
_FROM_AN_INDEX = re.compile(
    r"""
    [a-z0-9][a-z0-9._-]*\s*(?:\[[\w\s,.-]*\]\s*)?      # a name and its extras
    (?:@\s*(?:git\+)?https?://\S+ | [^@/]*?(?<!\.whl)(?<!\.zip)(?<!\.gz))   # where it is, or which versions will do
    | (?:git\+)?https?://\S+
    | (?:-i|--index-url|--extra-index-url|--trusted-host|--only-binary|--no-binary)[\s=].*
    | --no-index | --pre | --prefer-binary | --require-hashes
    | (?:-f|--find-links)[\s=]\s*https?://\S+
    """,
    re.ASCII | re.IGNORECASE | re.VERBOSE,
)


@dataclass(frozen=True)
class AppPlan:
    """How to run one repository. Paths are relative to its root."""

    sdk: str | None
    """gradio, streamlit, static; None: a Python program."""
    app_file: str
    python: str | None = None
    """The Python that the README asks for."""
    packages: tuple[str, ...] = ()
    """What the sdk itself needs, as pip reads it."""
    requirement_files: tuple[str, ...] = ()
    """In the order in which they are to be installed."""
    names_files: bool = False
    """Whether these name further files of the repository."""
    system_packages: tuple[str, ...] = ()

    def installs(self) -> list[list[str]]:
        """What pip is asked to install, one list of words per call.

        The sdk comes with requirements.txt, so that pip sees at once where the two contradict each other.
        """
        first = [["-r", name] for name in self.requirement_files if name != REQUIREMENTS]
        last = ["-r", REQUIREMENTS] if REQUIREMENTS in self.requirement_files else []
        return [*first, *([[*last, *self.packages]] if last or self.packages else [])]

    @property
    def folder(self) -> str:
        """Where the app_file lies; "." is the repository's root."""
        return self.app_file.rpartition("/")[0] or "."

    @property
    def page(self) -> str:
        """The app_file's name in its folder."""
        return self.app_file.rpartition("/")[2]


def read_plan(claim: Claim, source: Path) -> AppPlan:
    """The plan for the repository in *source*.

    Raises JobFailed with a sentence: ``no_dockerfile`` (nothing says how to run it), ``no_app_file``,
    ``readme_unusable`` (a version that is none), ``packages_unusable``.
    """
    app_file = _app_file(claim, source)
    if claim.sdk == "static":
        return AppPlan("static", app_file)
    texts = {name: text for name in (PRE_REQUIREMENTS, REQUIREMENTS) if (text := _text(source, name))}
    packages = _sdk_packages(claim)
    return AppPlan(
        sdk=claim.sdk if claim.sdk in _DEFAULT_FILES else None,
        app_file=app_file,
        python=_python(claim),
        packages=packages,
        requirement_files=tuple(texts),
        names_files=any(names_files(text) for text in texts.values()),
        system_packages=_system_packages(_text(source, SYSTEM_PACKAGES), "\n".join(texts.values())),
    )


def names_files(requirements: str) -> bool:
    """Whether a requirements file names files beside it, so that its text alone does not say what gets installed."""
    joined = requirements.replace("\\\r\n", " ").replace("\\\n", " ")
    lines = (re.sub(r"(?:^|\s)#.*|;.*|\s--hash=\S+", "", line).strip() for line in joined.splitlines())
    return any(line and (len(line) > LONGEST_LINE or _FROM_AN_INDEX.fullmatch(line) is None) for line in lines)


def _app_file(claim: Claim, source: Path) -> str:
    name = claim.app_file or _DEFAULT_FILES.get(claim.sdk or "")
    if name is None:
        raise JobFailed("no_dockerfile", "The repository has neither a Dockerfile nor an app_file.")
    if not name.isprintable() or name.startswith(("/", "-")) or {"", ".", ".."} & set(name.split("/")):
        raise JobFailed("no_app_file", f"The app_file {name!r} is not the path of a file in the repository.")
    path = source / name
    if path.is_dir() and is_within(path, source):
        raise JobFailed("no_app_file", f"The app_file {name} is a directory; it has to be a file.")
    if not is_within(path, source) or not path.is_file():
        missing = "" if claim.app_file else " It is what a README without an app_file means."
        raise JobFailed("no_app_file", f"The app_file {name} is not in the repository.{missing}")
    return name


def _python(claim: Claim) -> str | None:
    version = claim.python_version
    if version is not None and _PYTHON.fullmatch(version) is None:
        raise JobFailed(
            "readme_unusable", f"The README's python_version is {version!r}; it has to be one like 3.11 or 3.11.9."
        )
    return version


def _sdk_packages(claim: Claim) -> tuple[str, ...]:
    if claim.sdk not in ("gradio", "streamlit"):
        return ()
    version = claim.sdk_version
    if version is not None and _RELEASE.fullmatch(version) is None:
        raise JobFailed("readme_unusable", f"The README's sdk_version is {version!r}; it has to be one like 5.49.1.")
    exactly = f"=={version}" if version else ""
    if claim.sdk == "streamlit":
        return (f"streamlit{exactly}",)
    # as its authors find it at home: the extra for gr.LoginButton, and `import spaces`
    return (f"gradio[oauth]{exactly}", "spaces")


def _system_packages(text: str, requirements: str) -> tuple[str, ...]:
    """What packages.txt names, each once, and git where pip needs it. Raises JobFailed ``packages_unusable``."""
    names: dict[str, None] = {}
    for number, line in enumerate(text.splitlines(), 1):
        for name in line.partition("#")[0].split():
            if _SYSTEM_PACKAGE.fullmatch(name) is None:
                raise JobFailed(
                    "packages_unusable",
                    f"Line {number} of packages.txt has {name[:100]!r}, which cannot be the name of a Debian package.",
                )
            names[name] = None
    if "git+" in requirements:
        names["git"] = None
    return tuple(names)


def _text(source: Path, name: str) -> str:
    """A file of the repository; empty where there is none, or where it is a link that leaves the repository."""
    path = source / name
    if not path.is_file() or not is_within(path, source):
        return ""
    if path.stat().st_size > FILE_LIMIT_BYTES:
        raise JobFailed("readme_unusable", f"{name} is larger than {FILE_LIMIT_BYTES // 1024} KiB.")
    return path.read_text(encoding="utf-8-sig", errors="replace")  # Windows' editors begin a file with a mark
