"""Reading a file as it grows gives what reading it whole would, whatever happens to the file in between."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drydock.errors import UserError
from drydock.report.metrics import MetricsFile
from drydock.report.monitor.json_lines import JsonLines
from drydock.report.monitor.line_follower import LineFollower

TEXT = st.text("ab\n", max_size=8).map(str.encode)
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("append"), TEXT),
        st.tuples(st.just("replace"), TEXT),
        st.tuples(st.just("cut"), st.integers(0, 12)),
        st.tuples(st.just("delete"), st.none()),
        st.tuples(st.just("poll"), st.none()),
    ),
    max_size=20,
)


def change(file: Path, what: str, how: bytes | int | None) -> None:
    match what, how:
        case "append", bytes(text):
            with file.open("ab") as stream:
                stream.write(text)
        case "replace", bytes(text):
            other = file.with_name("other")
            other.write_bytes(text)
            other.replace(file)
        case "cut", int(size) if file.exists():
            os.truncate(file, min(size, file.stat().st_size))
        case "delete", _:
            file.unlink(missing_ok=True)


@given(CHANGES)
def test_what_was_given_out_is_what_the_file_holds(changes: list[tuple[str, bytes | int | None]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "lines"
        follower, seen = LineFollower(file), []
        for what, how in [*changes, ("poll", None)]:
            change(file, what, how)
            if what == "poll":
                new = follower.poll()
                seen = ([] if new.anew else seen) + new.lines
        whole = file.read_bytes() if file.exists() else b""
        assert seen == whole.split(b"\n")[:-1]


def test_half_a_line_waits_for_its_end(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    lines = JsonLines(file)
    assert lines.poll() == (False, [])
    file.write_bytes(b'{"step": 1}\n{"st')
    assert lines.poll() == (True, [{"step": 1}])
    assert lines.poll() == (False, [])
    with file.open("ab") as stream:
        stream.write(b'ep": 2}\n')
    assert lines.poll() == (False, [{"step": 2}])
    assert lines.unreadable == 0


def test_what_is_no_record_is_counted_until_the_file_is_another(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_text('{"step": 1, "a"\n[1]\n\n{"step": "x"}\n{"step": true}\n{"step": 2}\n')
    lines = JsonLines(file)
    assert lines.poll() == (True, [{"step": 2}])
    assert lines.unreadable == 4
    file.write_text('{"step": 3}\n')
    assert lines.poll() == (True, [{"step": 3}])
    assert lines.unreadable == 0


def test_ten_thousand_steps_are_read_once(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path / "metrics.jsonl")
    line = f'{{"step": 1, "note": "{"x" * 1000}"}}\n'
    (tmp_path / "metrics.jsonl").write_text(line * 10_000)
    lines = JsonLines(tmp_path / "metrics.jsonl")
    assert len(lines.poll()[1]) == 10_000
    before = bytes_read()
    assert lines.poll() == (False, [])
    metrics.write(2, {})
    assert lines.poll() == (False, [{"step": 2}])
    assert bytes_read() - before < 10_000


def test_a_folder_in_its_place_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"{tmp_path} cannot be read"):
        LineFollower(tmp_path).poll()


def bytes_read() -> int:
    """Of this process, from files, so far."""
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counts["rchar"])
