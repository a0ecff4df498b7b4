"""What counts as a result is decided from the tar stream alone, within the server's quota."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Generator, Sequence

import pytest

from gpu_worker import result_survey
from gpu_worker.errors import EngineError, EngineSilent, JobInterrupted
from gpu_worker.result_files import KEPT_FILE_BYTES, Quota, Results, deceives, only_file
from gpu_worker.result_survey import Survey

PLENTY = Quota(file_bytes=10**9, job_bytes=10**9, files=1000)


def archive(*entries: tuple[str, bytes] | tarfile.TarInfo) -> bytes:
    """A tar as an engine makes it: the directory first."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for entry in (special("results", tarfile.DIRTYPE), *entries):
            if isinstance(entry, tarfile.TarInfo):
                tar.addfile(entry)
            else:
                info = tarfile.TarInfo(f"results/{entry[0]}")
                info.size = len(entry[1])
                tar.addfile(info, io.BytesIO(entry[1]))
    return made.getvalue()


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def pieces(content: bytes, size: int = 700) -> Generator[bytes, None, None]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


class Stored:
    """A results directory whose stream and files are given."""

    def __init__(self, stream: Generator[bytes, None, None], **files: bytes) -> None:
        self.stream, self.files, self.asked = stream, files, list[str]()

    def results(self, path: str = "") -> Generator[bytes, None, None] | None:
        self.asked.append(path)
        if not path:
            return self.stream
        if path not in self.files:
            return None
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w") as tar:
            info = tarfile.TarInfo(path)
            info.size = len(self.files[path])
            tar.addfile(info, io.BytesIO(self.files[path]))
        return pieces(made.getvalue())

    def result_paths(self) -> Sequence[str]:
        return sorted(self.files)


def look(content: bytes, quota: Quota = PLENTY) -> Results:
    return Survey(quota, check=lambda: None).look(Stored(pieces(content)))


def test_small_files_are_kept_in_memory_and_large_ones_are_not() -> None:
    large = b"x" * (KEPT_FILE_BYTES + 1)

    small_one, large_one = look(archive(("a/small", b"abc"), ("large", large))).files

    assert (small_one.path, small_one.size, small_one.content) == ("a/small", 3, b"abc")
    assert small_one.sha256 == hashlib.sha256(b"abc").hexdigest()
    assert (large_one.size, large_one.content) == (len(large), None)
    assert large_one.sha256 == hashlib.sha256(large).hexdigest()


def test_links_devices_and_directories_are_no_results() -> None:
    content = archive(
        special("results/link", tarfile.SYMTYPE, "/etc/passwd"),
        special("results/fifo", tarfile.FIFOTYPE),
        special("results/null", tarfile.CHRTYPE),
        special("results/disk", tarfile.BLKTYPE),
        special("results/empty", tarfile.DIRTYPE),
        ("file", b"1"),
    )

    results = look(content)

    assert [file.path for file in results.files] == ["file"]
    assert results.others == 4


def test_a_second_name_of_a_file_is_a_result_of_its_own() -> None:
    results = look(archive(("a", b"same"), special("results/b", tarfile.LNKTYPE, "results/a")))

    assert [(file.path, file.size) for file in results.files] == [("a", 4), ("b", 4)]
    assert len({file.sha256 for file in results.files}) == 1
    assert results.size == 8


def test_what_exceeds_a_limit_is_left_out_and_the_rest_is_kept() -> None:
    content = archive(("a", b"1" * 60), ("too-large", b"2" * 101), ("b", b"3" * 60), ("c", b"4" * 40), ("d", b"5"))

    results = look(content, Quota(file_bytes=100, job_bytes=110, files=2))

    assert [file.path for file in results.files] == ["a", "c"]
    assert [(one.path, one.size, one.reason) for one in results.skipped] == [
        ("too-large", 101, "file_too_large"),
        ("b", 60, "job_quota"),
        ("d", 1, "too_many_files"),
    ]


def test_another_name_of_a_file_that_was_left_out_is_left_out_too() -> None:
    content = archive(("a", b"1" * 101), special("results/b", tarfile.LNKTYPE, "results/a"))

    assert [one.path for one in look(content, Quota(100, 100, 10)).skipped] == ["a", "b"]


@pytest.mark.parametrize("name", ["a\nb", "a\\b", "\x1b[31m", "../up", "x" * 300, "a\u2028b"])
def test_names_that_cannot_be_kept_are_left_out_under_one_that_can_be_shown(name: str) -> None:
    results = look(archive((name, b"1"), ("good", b"2")))

    assert [file.path for file in results.files] == ["good"]
    [skipped] = results.skipped
    assert skipped.reason == "bad_name"
    assert skipped.path.isprintable()


def test_a_name_that_is_not_utf8_is_left_out() -> None:
    [skipped] = look(archive(("bad\udcff", b"1"))).skipped

    assert (skipped.path, skipped.reason) == ("bad\N{REPLACEMENT CHARACTER}", "bad_name")


def test_a_directory_deeper_than_an_engine_surely_reads_is_named_once() -> None:
    """What is below may not be in the stream at all, so that nothing else would tell of it."""
    names = ["d" * 200] * 20
    deep = [special("/".join(["results", *names[:levels]]), tarfile.DIRTYPE) for levels in range(1, 21)]

    results = look(archive(*deep, ("beside", b"1")))

    assert [file.path for file in results.files] == ["beside"]
    [skipped] = results.skipped
    assert skipped.reason == "unreadable"
    assert skipped.path.startswith("d" * 60 + "/")


def test_where_an_engine_cannot_list_the_files_the_rest_is_told_to_be_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(result_survey, "STREAM_SECONDS", 0.0)

    class Unlisted(Stored):
        def result_paths(self) -> Sequence[str]:
            raise EngineError("lstat …/d/d/d: file name too long")

    results = Survey(PLENTY, check=lambda: None).look(Unlisted(pieces(archive(("a", b"1"), ("b", b"2")))))

    assert [file.path for file in results.files] == ["a"]
    assert not results.whole


@pytest.mark.parametrize(
    ("path", "deceiving"), [("a\u202egnp.exe", True), ("a\u2066b", True), ("\u200fa", True), ("👩\u200d🔬.png", False)]
)
def test_names_that_look_like_others_are_known(path: str, deceiving: bool) -> None:
    assert deceives(path) is deceiving


def test_a_directory_of_a_million_files_is_not_read_to_its_end() -> None:
    read = 0

    def endless() -> Generator[bytes, None, None]:
        nonlocal read
        for number in range(100_000):
            content = archive((f"f{number}", b"x"))[512:1536]  # one entry, without the directory and the end
            read += len(content)
            yield content

    results = Survey(Quota(10, 10**9, 5), check=lambda: None).look(Stored(endless()))

    assert len(results.files) == 5
    assert not results.whole
    assert read < 5_000_000


def test_a_stream_that_breaks_off_is_tried_again() -> None:
    content = archive(("a", b"1" * 5000))

    with pytest.raises(EngineSilent):
        look(content[:3000])
    with pytest.raises(EngineSilent):
        look(b"")


def test_the_reading_can_be_ended() -> None:
    def check() -> None:
        raise JobInterrupted

    with pytest.raises(JobInterrupted):
        Survey(PLENTY, check=check).look(Stored(pieces(archive(("a", b"1")))))


def test_after_a_file_that_is_not_read_through_the_others_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tar stream cannot pass over a file, and it may be of any size: only its head is ever read."""
    monkeypatch.setattr(result_survey, "PASSED_OVER_BYTES", 1000)
    large = special("results/large", tarfile.REGTYPE)
    large.size = 10**9
    head = archive(("a", b"1"), large)[: 512 * 4]  # the directory, a, its content, the head of the large one

    def never_more() -> Generator[bytes, None, None]:
        yield head
        yield from [bytes(65536)] * 32  # as much as is read ahead
        raise AssertionError("the large file was read")

    directory = Stored(never_more(), a=b"1", large=b"2" * 11, z=b"3", zz=b"4" * 11)
    results = Survey(Quota(10, 100, 10), check=lambda: None).look(directory)

    assert [(file.path, file.content) for file in results.files] == [("a", b"1"), ("z", b"3")]
    assert [one.path for one in results.skipped] == ["large", "zz"]
    assert directory.asked == ["", "z", "zz"]
    assert results.whole


def test_where_the_list_of_files_is_not_whole_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine lists nothing of a volume, and nothing that an image brought."""
    monkeypatch.setattr(result_survey, "STREAM_SECONDS", 0.0)

    results = Survey(PLENTY, check=lambda: None).look(Stored(pieces(archive(("a", b"1"), ("b", b"2")))))

    assert [file.path for file in results.files] == ["a"]
    assert not results.whole


def test_after_a_break_the_look_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_survey, "STREAM_SECONDS", 0.0)
    breaks = iter((False, True, False, False))

    class Breaking(Stored):
        def results(self, path: str = "") -> Generator[bytes, None, None] | None:
            if path and next(breaks):
                raise EngineSilent("not now")
            return super().results(path)

    directory = Breaking(pieces(archive(("a", b"1"), ("b", b"2"), ("c", b"3"))), a=b"1", b=b"2", c=b"3")
    survey = Survey(PLENTY, check=lambda: None)
    with pytest.raises(EngineSilent):
        survey.look(directory)

    assert [file.path for file in survey.look(directory).files] == ["a", "b", "c"]
    assert directory.asked == ["", "b", "c"]


def test_one_file_is_read_again_by_itself() -> None:
    assert b"".join(only_file(pieces(archive(("a", b"1" * 5000))))) == b"1" * 5000
    with pytest.raises(EngineError):
        list(only_file(pieces(archive())))
