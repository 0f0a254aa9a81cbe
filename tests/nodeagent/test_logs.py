"""Container logs."""

from __future__ import annotations

from pathlib import Path

from hekla.nodeagent.logs import LogFile


def text_of(file: LogFile, position: int) -> str:
    return b"".join(file.read(position)).decode()


def test_log_can_be_read_by_lines_and_by_time(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_text("")
    file = LogFile(path)
    for second in range(5):
        file.mark(1000.0 + second)
        with path.open("a") as out:
            out.write(f"line {second}\n")
    assert text_of(file, file.tail(2)) == "line 3\nline 4\n"
    assert text_of(file, file.tail(99)).startswith("line 0\n")
    assert text_of(file, file.tail(0)) == ""
    assert text_of(file, file.since(1003.5)) == "line 3\nline 4\n"
    stamped = file.stamp(b"line 2\nline 3\n", 14, True).decode().splitlines()
    assert stamped == ["1970-01-01T00:16:42Z line 2", "1970-01-01T00:16:43Z line 3"]
    with path.open("a") as out:
        out.write("unfinished")
    assert text_of(file, file.tail(1)) == "unfinished"


def test_log_size_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    file = LogFile(path)
    with path.open("ab", buffering=0) as out:
        for number in range(2000):
            out.write(f"{number:06} {'x' * 1000}\n".encode())
            if number % 100 == 0:
                file.bound(max_bytes=400_000, keep_bytes=200_000)
        file.bound(max_bytes=400_000, keep_bytes=200_000)
    assert path.stat().st_blocks * 512 <= 500_000
    kept = text_of(file, file.first()).splitlines()
    assert kept[-1].startswith("001999")
    assert all(len(line) == 1007 for line in kept), "it begins at the start of a line"
    assert text_of(file, file.tail(1)).startswith("001999")
