"""What a worker makes of a repository without a Dockerfile: a Dockerfile, by its README's keys and its files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_worker.app_plan import names_files
from gpu_worker.build_settings import BuildSettings, load
from gpu_worker.errors import ConfigError, JobFailed
from gpu_worker.images import BuildPlan, plan_build
from gpu_worker.protocol import Claim
from tests.gpu_worker.schemas import golden

Repository = Callable[..., Path]
PUBLIC = BuildSettings()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Writes a repository's files; underscores in names stand for dots."""

    def write(files: dict[str, str]) -> Path:
        source = tmp_path / "source"
        for name, text in files.items():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_text(text)
        source.mkdir(exist_ok=True)
        return source

    return write


def claim(sdk: str | None = None, **changes: str | int | dict[str, str] | None) -> Claim:
    plain = Claim.read(golden("claim.response")["minimal"])
    return replace(plain, sdk=sdk, **changes)  # type: ignore[arg-type]  # a test names the fields it changes


def dockerfile(plan: BuildPlan) -> list[str]:
    assert plan.recipe is not None
    return plan.recipe.text.splitlines()


def refusal(claim: Claim, source: Path) -> tuple[str, str]:
    with pytest.raises(JobFailed) as failure:
        plan_build(claim, source, PUBLIC)
    return failure.value.reason, failure.value.detail


# --- the Dockerfile --------------------------------------------------------------------------------------------------


def test_a_gradio_space_gets_a_dockerfile_that_a_person_could_have_written(repository: Repository) -> None:
    source = repository(
        {
            "app.py": "import gradio",
            "pre-requirements.txt": "pip>=24\n",
            "requirements.txt": "numpy\ngit+https://example.org/a/b@main\n",
            "packages.txt": "ffmpeg  # for sound\nlibgl1\n\nffmpeg\n",
        }
    )

    plan = plan_build(claim("gradio", sdk_version="5.49.1", python_version="3.10"), source, PUBLIC)

    assert dockerfile(plan) == [
        "FROM python:3.10-slim",
        "ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore",
        "ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        "RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "
        "ffmpeg libgl1 git && rm -rf /var/lib/apt/lists/*",
        "RUN grep -q '^[^:]*:[^:]*:1000:' /etc/passwd || echo 'user:x:1000:1000::/home/user:/bin/sh' >> /etc/passwd; "
        "mkdir -p /home/user/app && chown -R 1000:1000 /home/user",
        "WORKDIR /home/user/app",
        "COPY pre-requirements.txt ./",
        "RUN pip install -r pre-requirements.txt",
        "COPY requirements.txt ./",
        "RUN pip install -r requirements.txt 'gradio[oauth]==5.49.1' spaces",
        "COPY --chown=1000:1000 . .",
        "USER 1000",
        "ENV HOME=/home/user USER=user PATH=/home/user/.local/bin:$PATH",
        "ENV GRADIO_SERVER_NAME=0.0.0.0 GRADIO_SERVER_PORT=7860 GRADIO_ANALYTICS_ENABLED=False",
        "EXPOSE 7860",
        'CMD ["python", "app.py"]',
    ]


def test_a_streamlit_space_is_started_by_streamlit_on_its_port(repository: Repository) -> None:
    source = repository({"pages/home.py": ""})

    lines = dockerfile(plan_build(claim("streamlit", app_file="pages/home.py", port=8501), source, PUBLIC))

    assert "RUN pip install streamlit" in lines
    assert any("STREAMLIT_SERVER_PORT=8501" in line for line in lines)
    assert lines[-2:] == ["EXPOSE 8501", 'CMD ["streamlit", "run", "pages/home.py"]']


def test_a_static_space_is_served_from_its_page_s_folder_and_installs_nothing(repository: Repository) -> None:
    source = repository({"site/start page.html": "", "requirements.txt": "numpy\n"})

    lines = dockerfile(plan_build(claim("static", app_file="site/start page.html"), source, PUBLIC))

    assert not any("pip" in line for line in lines)
    assert 'RUN ["ln", "-sf", "--", "start page.html", "site/index.html"]' in lines
    assert lines[-1].startswith('CMD ["python", "-m", "http.server", "7860", "--bind", "0.0.0.0"')
    assert lines[-1].endswith('"--directory", "site"]')


def test_an_app_file_alone_is_a_python_program(repository: Repository) -> None:
    source = repository({"main.py": "", "requirements.txt": "requests\n"})

    lines = dockerfile(plan_build(claim(None, app_file="main.py"), source, PUBLIC))

    assert "RUN pip install -r requirements.txt" in lines
    assert lines[-1] == 'CMD ["python", "main.py"]'


@pytest.mark.parametrize(("sdk", "file"), [("gradio", "app.py"), ("streamlit", "app.py"), ("static", "index.html")])
def test_a_readme_without_app_file_means_the_usual_one(repository: Repository, sdk: str, file: str) -> None:
    reason, detail = refusal(claim(sdk), repository({"other.py": ""}))
    assert reason == "no_app_file"
    assert detail.startswith(f"The app_file {file} is not in the repository.")

    assert plan_build(claim(sdk), repository({file: ""}), PUBLIC).recipe is not None


def test_a_dockerfile_goes_before_the_sdk(repository: Repository) -> None:
    source = repository({"Dockerfile": "FROM scratch\n", "app.py": ""})

    plan = plan_build(claim("gradio"), source, PUBLIC)

    assert (plan.dockerfile, plan.recipe) == (source / "Dockerfile", None)


def test_sdk_docker_without_a_dockerfile_is_told_so(repository: Repository) -> None:
    source = repository({"app.py": ""})

    assert refusal(claim("docker", app_file="app.py"), source) == (
        "no_dockerfile",
        "The README says sdk: docker, and the repository has no Dockerfile.",
    )


def test_requirements_that_name_files_are_installed_where_the_files_are(repository: Repository) -> None:
    source = repository({"app.py": "", "requirements.txt": "-r more.txt\n", "more.txt": "numpy\n"})

    lines = dockerfile(plan_build(claim("gradio"), source, PUBLIC))

    assert lines.index("COPY --chown=1000:1000 . .") < lines.index(
        "RUN pip install -r requirements.txt 'gradio[oauth]' spaces"
    )
    assert "COPY requirements.txt ./" not in lines


@pytest.mark.parametrize(
    "text",
    [
        "torch==2.1\nnumpy>=1,<2 ; python_version < '3.12'\n\n# a remark\n",
        "--extra-index-url https://example.org/whl/cu124\ntorch\n",
        "pkg[a,b]~=1.0  # a remark",
        "pkg @ https://example.org/pkg-1-py3-none-any.whl",
        "git+https://example.org/a/b@main#egg=b",
        "a==1 \\\n    --hash=sha256:abc \\\n    --hash=sha256:def\n",
        "--no-index\n-f https://example.org/wheels\na\n",
    ],
)
def test_what_comes_from_an_index_names_no_files(text: str) -> None:
    assert not names_files(text)


@pytest.mark.parametrize(
    "text",
    ["-e .", "./pkg", "pkg.whl", "wheels/pkg.whl", "-r more.txt", "-c limits.txt", "-f ./wheels", "pkg @ file:///x"],
)
def test_what_lies_in_the_repository_is_a_file(text: str) -> None:
    assert names_files(text)


# --- what is wrong is a sentence -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["2.7", "3", "3.x", "3.11\nRUN reboot", "3.11-slim", "latest", "3.1 AS x", "３.11"])
def test_a_python_version_that_is_none_is_a_sentence(repository: Repository, version: str) -> None:
    reason, detail = refusal(claim("gradio", python_version=version), repository({"app.py": ""}))

    assert reason == "readme_unusable"
    assert detail == f"The README's python_version is {version!r}; it has to be one like 3.11 or 3.11.9."


@pytest.mark.parametrize("version", ["latest", "5.x", "5.0'; reboot; '", ">=5", "5.0 --pre", "1!2.0", "5.0+local"])
def test_an_sdk_version_that_is_none_is_a_sentence(repository: Repository, version: str) -> None:
    reason, detail = refusal(claim("gradio", sdk_version=version), repository({"app.py": ""}))

    assert reason == "readme_unusable"
    assert detail.startswith(f"The README's sdk_version is {version!r};")


@pytest.mark.parametrize("version", ["5.49.1", "4.0.0b3", "3.50", "6.0.0.dev1", "1.40.0.post1", "5.0rc1"])
def test_releases_are_taken_as_they_are(repository: Repository, version: str) -> None:
    lines = dockerfile(plan_build(claim("gradio", sdk_version=version), repository({"app.py": ""}), PUBLIC))

    assert f"RUN pip install 'gradio[oauth]=={version}' spaces" in lines


@pytest.mark.parametrize("path", ["/etc/passwd", "../app.py", "a//b.py", "-c", "a\nUSER root", "./app.py"])
def test_an_app_file_outside_of_the_repository_is_a_sentence(repository: Repository, path: str) -> None:
    reason, detail = refusal(claim("gradio", app_file=path), repository({"app.py": ""}))

    assert (reason, detail) == ("no_app_file", f"The app_file {path!r} is not the path of a file in the repository.")


@pytest.mark.parametrize("target", ["/etc/passwd", "app.py"])
def test_an_app_file_that_is_a_link_out_of_the_repository_or_to_itself_is_not_in_it(
    repository: Repository, target: str
) -> None:
    source = repository({})
    (source / "app.py").symlink_to(target)

    assert refusal(claim("gradio", app_file="app.py"), source) == (
        "no_app_file",
        "The app_file app.py is not in the repository.",
    )


def test_an_app_file_with_quotes_stays_one_word(repository: Repository) -> None:
    name = 'a "b" $(c) ; d\\.py'

    lines = dockerfile(plan_build(claim("gradio", app_file=name), repository({name: ""}), PUBLIC))

    assert lines[-1] == 'CMD ["python", "a \\"b\\" $(c) ; d\\\\.py"]'


@pytest.mark.parametrize("word", ["curl;reboot", "$(reboot)", "-o", "../x", "Curl", "a&&b", "`x`"])
def test_a_line_of_packages_txt_that_names_no_package_is_a_sentence(repository: Repository, word: str) -> None:
    reason, detail = refusal(claim("gradio"), repository({"app.py": "", "packages.txt": f"curl\n{word}\n"}))

    assert reason == "packages_unusable"
    assert detail == f"Line 2 of packages.txt has {word!r}, which cannot be the name of a Debian package."


def test_a_file_that_is_a_link_out_of_the_repository_is_not_read(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "of the machine").write_text("A Secret Line\n")
    source = repository({"app.py": ""})
    (source / "packages.txt").symlink_to(tmp_path / "of the machine")

    lines = dockerfile(plan_build(claim("gradio"), source, PUBLIC))

    assert not any("apt-get" in line or "Secret" in line for line in lines)


# --- what the machine's owner sets -----------------------------------------------------------------------------------


def test_base_image_index_and_sources_are_the_owner_s(repository: Repository, tmp_path: Path) -> None:
    pip, apt = tmp_path / "pip.conf", tmp_path / "sources.list"
    pip.touch()
    apt.touch()
    variables = {
        "OPENFACE_PYTHON_IMAGE": "registry.lan/python:{version}",
        "OPENFACE_PIP_CONFIG": str(pip),
        "OPENFACE_APT_SOURCES": str(apt),
    }
    source = repository({"app.py": "", "packages.txt": "curl\n"})

    plan = plan_build(claim("gradio", python_version="3.12"), source, load(variables, base_image="other"))

    lines = dockerfile(plan)
    assert lines[0] == "FROM registry.lan/python:3.12"
    secret = "id=openface-apt-sources,target=/run/secrets/openface-apt-sources"
    assert lines[3].startswith(f"RUN --mount=type=secret,{secret} apt-get -o Dir::Etc::sourcelist=/run/secrets/")
    mount = "--mount=type=secret,id=openface-pip-config,target=/etc/pip.conf"
    assert f"RUN {mount} pip install 'gradio[oauth]' spaces" in lines
    assert plan.recipe is not None
    assert dict(plan.recipe.secrets) == {"openface-pip-config": pip, "openface-apt-sources": apt}


def test_one_image_for_all_is_told_where_the_readme_asks_for_another_python(repository: Repository) -> None:
    source, settings = repository({"app.py": ""}), load({}, base_image="local/python:3.11")

    plan = plan_build(claim("gradio", python_version="3.9"), source, settings)

    assert plan.recipe is not None
    assert dockerfile(plan)[0] == "FROM local/python:3.11"
    assert plan.recipe.notes == ("The README asks for Python 3.9; this worker builds everything on local/python:3.11.",)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OPENFACE_PYTHON_IMAGE", "python:3.11\nRUN reboot"),
        ("OPENFACE_PYTHON_IMAGE", "--platform=x y"),
        ("OPENFACE_PIP_CONFIG", "/nowhere/pip.conf"),
        ("OPENFACE_APT_SOURCES", "/nowhere/sources.list"),
    ],
)
def test_a_setting_that_cannot_work_is_named(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        load({name: value}, base_image="")


# --- when the image of before will do --------------------------------------------------------------------------------


def test_the_image_is_another_when_anything_that_counts_changes(repository: Repository) -> None:
    source = repository({"app.py": "", "requirements.txt": "numpy\n"})
    plain = plan_build(claim("gradio"), source, PUBLIC).inputs

    others = [
        plan_build(claim("gradio", sdk_version="5.0.0"), source, PUBLIC).inputs,
        plan_build(claim("gradio", python_version="3.12"), source, PUBLIC).inputs,
        plan_build(claim("gradio", port=8000), source, PUBLIC).inputs,
        plan_build(claim("streamlit"), source, PUBLIC).inputs,
        plan_build(claim("gradio"), source, BuildSettings(python_image="other/python")).inputs,
    ]

    assert len({plain, *others}) == 1 + len(others)


def test_variables_and_secrets_of_the_app_build_nothing_anew(repository: Repository) -> None:
    source = repository({"app.py": ""})

    plain = plan_build(claim("gradio"), source, PUBLIC)
    other = plan_build(claim("gradio", build_args={"A": "b"}, secrets={"KEY": "value"}), source, PUBLIC)

    assert plain.inputs == other.inputs


def test_with_a_dockerfile_variables_count_and_the_values_of_secrets_do_not(repository: Repository) -> None:
    source = repository({"Dockerfile": "FROM scratch\n"})

    def inputs(**changes: dict[str, str]) -> str:
        return plan_build(claim("docker", **changes), source, PUBLIC).inputs

    assert inputs(build_args={"A": "b"}) != inputs(build_args={"A": "c"})
    assert inputs(secrets={"KEY": "one"}) == inputs(secrets={"KEY": "two"})


@pytest.mark.timeout(20)
def test_a_line_without_end_in_requirements_stops_nobody() -> None:
    assert names_files("a" * 1_000_000 + "/")


def test_a_dockerfile_that_nobody_wrote_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_bytes(b"\n" * (2 * 1024 * 1024))

    assert refusal(claim(), tmp_path) == ("dockerfile_unusable", "The Dockerfile is larger than 1024 KiB.")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"RUN --mount=type=bind,target=/y\\\n\x1c#,from=private cp a b", "Line 3 of the Dockerfile has the control"),
        (b'RUN --mount="type=bind,target=/y\r#,from=private" cp a b', "Line 2 of the Dockerfile has a carriage return"),
        (b"ADD x \r# http://127.0.0.1/x /got/", "Line 2 of the Dockerfile has a carriage return"),
        (b"RUN true\x00", "U+0000"),
        (b"RUN true\x0b", "U+000B"),
        (b"\x0c# syntax=evil", "U+000C"),
        ("RUN true\u0085# x".encode(), "U+0085"),
        ("RUN true\u2028# x".encode(), "U+2028"),
    ],
)
def test_a_dockerfile_that_readers_read_differently_is_not_read(tmp_path: Path, line: bytes, told: str) -> None:
    (tmp_path / "Dockerfile").write_bytes(b"FROM base\n" + line + b"\n")

    reason, detail = refusal(claim(), tmp_path)

    assert reason == "dockerfile_unusable"
    assert told in detail


def test_a_dockerfile_from_windows_is_read(tmp_path: Path) -> None:
    content = "\ufeffFROM base\r\n# Grüße, 日本語\r\n\tRUN echo\r\n".encode()
    (tmp_path / "Dockerfile").write_bytes(content)

    assert plan_build(claim(), tmp_path, BuildSettings()).dockerfile == tmp_path / "Dockerfile"


def test_packages_of_a_windows_editor_are_read(repository: Repository) -> None:
    source = repository({"app.py": "", "packages.txt": "\ufeff# sound\r\nffmpeg\r\n"})

    assert " ffmpeg && " in plan_build(claim("gradio"), source, BuildSettings()).text
