"""The Dockerfile that the worker makes for a repository that has none.

It is written as a person would write it, is shown whole in the build log, and can be copied from there into the
repository. Its values come from `app_plan.py`, which has checked them.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpu_worker.app_plan import AppPlan
from gpu_worker.build_settings import DEFAULT_PYTHON, BuildSettings

HOME, APP = "/home/user", "/home/user/app"
USER = 1000  # as on Hugging Face, so that what an app may write is the same
PIP_CONFIG, APT_SOURCES = "openface-pip-config", "openface-apt-sources"  # ids of build secrets
# Debian images have useradd and others have not; a line in this file is enough for both.
_MAKE_USER = (
    f"grep -q '^[^:]*:[^:]*:{USER}:' /etc/passwd || echo 'user:x:{USER}:{USER}::{HOME}:/bin/sh' >> /etc/passwd; "
    f"mkdir -p {APP} && chown -R {USER}:{USER} {HOME}"
)


@dataclass(frozen=True)
class Recipe:
    """A Dockerfile, what was decided in it, and the files of this machine that its steps see but the image does not."""

    text: str
    notes: tuple[str, ...] = ()
    secrets: Mapping[str, Path] = field(default_factory=dict)


def recipe_for(plan: AppPlan, settings: BuildSettings, *, port: int) -> Recipe:
    """Write the Dockerfile. *port* is where the app shall listen."""
    secrets: dict[str, Path] = {}
    if plan.requirement_files or plan.packages:
        secrets |= {PIP_CONFIG: settings.pip_config} if settings.pip_config else {}
    if plan.system_packages:
        secrets |= {APT_SOURCES: settings.apt_sources} if settings.apt_sources else {}
    return Recipe("\n".join(_lines(plan, settings, port, frozenset(secrets))) + "\n", _notes(plan, settings), secrets)


def _notes(plan: AppPlan, settings: BuildSettings) -> tuple[str, ...]:
    if plan.python is None or settings.any_python:
        return ()
    return (f"The README asks for Python {plan.python}; this worker builds everything on {settings.python_image}.",)


def _lines(plan: AppPlan, settings: BuildSettings, port: int, secrets: frozenset[str]) -> Iterator[str]:
    yield f"FROM {settings.python_image_for(plan.python or DEFAULT_PYTHON)}"
    if plan.sdk != "static":
        yield "ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore"
        yield "ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility"  # older container toolkits give only the latter unasked
    if plan.system_packages:
        yield _install_system_packages(plan, settings.apt_sources)
    yield f"RUN {_MAKE_USER}"
    yield f"WORKDIR {APP}"
    if plan.names_files:
        yield _COPY_ALL
    yield from _install(plan, secrets)
    if not plan.names_files:
        yield _COPY_ALL
    if plan.sdk == "static" and plan.page != "index.html":
        yield "RUN " + json.dumps(["ln", "-sf", "--", plan.page, f"{plan.folder}/index.html"], ensure_ascii=False)
    yield f"USER {USER}"
    yield f"ENV HOME={HOME} USER=user PATH={HOME}/.local/bin:$PATH"
    yield from _listening(plan, port)
    yield f"EXPOSE {port}"
    yield "CMD " + json.dumps(_command(plan, port), ensure_ascii=False)


_COPY_ALL = f"COPY --chown={USER}:{USER} . ."


def _install_system_packages(plan: AppPlan, sources: Path | None) -> str:
    mount, options = "", ""
    if sources is not None:
        # apt tells its two formats apart by this ending, and so by nothing else
        place = f"/run/secrets/{APT_SOURCES}" + (".sources" if sources.suffix == ".sources" else "")
        mount = f"--mount=type=secret,id={APT_SOURCES},target={place} "
        options = f" -o Dir::Etc::sourcelist={place} -o Dir::Etc::sourceparts=-"
    names = " ".join(map(shlex.quote, plan.system_packages))
    return (
        f"RUN {mount}apt-get{options} update && "
        f"DEBIAN_FRONTEND=noninteractive apt-get{options} install -y --no-install-recommends {names} && "
        "rm -rf /var/lib/apt/lists/*"
    )


def _install(plan: AppPlan, secrets: frozenset[str]) -> Iterator[str]:
    """One step per file, so that what has not changed comes from the cache."""
    mount = f"--mount=type=secret,id={PIP_CONFIG},target=/etc/pip.conf " if PIP_CONFIG in secrets else ""
    for words in plan.installs():
        if words[0] == "-r" and not plan.names_files:
            yield f"COPY {words[1]} ./"
        yield f"RUN {mount}pip install {shlex.join(words)}"


def _listening(plan: AppPlan, port: int) -> Iterator[str]:
    if plan.sdk == "gradio":
        yield f"ENV GRADIO_SERVER_NAME=0.0.0.0 GRADIO_SERVER_PORT={port} GRADIO_ANALYTICS_ENABLED=False"
    elif plan.sdk == "streamlit":
        yield (
            f"ENV STREAMLIT_SERVER_ADDRESS=0.0.0.0 STREAMLIT_SERVER_PORT={port} STREAMLIT_SERVER_HEADLESS=true "
            "STREAMLIT_BROWSER_GATHER_USAGE_STATS=false"
        )


def _command(plan: AppPlan, port: int) -> list[str]:
    match plan.sdk:
        case "static":
            return ["python", "-m", "http.server", str(port), "--bind", "0.0.0.0", "--directory", plan.folder]
        case "streamlit":
            return ["streamlit", "run", plan.app_file]
        case _:
            return ["python", plan.app_file]
