"""The curve in characters: never wider or higher than its room, and in the right place."""

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from drydock.report.monitor.text_plot import MARK_SIGN, plot

VALUES = st.floats(-1e6, 1e6)
LINES = st.lists(VALUES, max_size=60).map(lambda values: list(enumerate(values, start=1)))
MARKS = st.lists(st.tuples(st.integers(0, 60), VALUES), max_size=5)


@given(LINES, MARKS, st.integers(0, 90), st.integers(0, 12))
def test_it_fits_into_its_room(line: list, marks: list, width: int, height: int) -> None:
    drawn = plot(line, marks, width, height)
    assert len(drawn) in (0, height)
    assert all(cell_len(text.plain) <= width for text in drawn)


def test_a_rise_goes_from_the_lower_left_to_the_upper_right() -> None:
    drawn = [text.plain for text in plot([(1, 0.0), (2, 0.5), (3, 1.0)], [], 14, 4)]
    assert drawn == ["  1        ⣠⠴⠚", "       ⢀⣠⠴⠋⠁  ", "  0 ⣠⠴⠚⠉      ", "    1        3"]


def test_a_mark_stands_where_its_value_is() -> None:
    drawn = [text.plain for text in plot([(0, 0.0), (10, 1.0)], [(10, 0.0), (0, 1.0)], 30, 5)]
    assert drawn[0].index(MARK_SIGN) == 2
    assert drawn[3].rstrip().endswith(MARK_SIGN)
    assert len(drawn[3].rstrip()) == 30


def test_many_steps_are_means_of_neighbours() -> None:
    drawn = [text.plain for text in plot([(step, float(step % 2)) for step in range(10_000)], [], 52, 6)]
    blank = [not line[2:].strip() for line in drawn[:-1]]
    assert blank == [True, True, False, True, True]


def test_nothing_is_drawn_of_nothing() -> None:
    assert plot([], [], 80, 10) == []
