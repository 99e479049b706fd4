import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

sys.path.insert(0, "/app")

OLD = re.compile(r"\bcalc\b")


def run(*arguments):
    return subprocess.run([sys.executable, "-W", "error", *arguments], cwd="/app", capture_output=True, text=True)


def test_report_runs_without_warnings():
    done = run("report.py")
    assert done.stdout == "calculated square 9\ncalculated rectangle 10\n", done.stderr


def test_new_name():
    import shapes
    from shapes.area import area_of

    assert shapes.area_of(("square", 2)) == 4
    assert area_of(shape=("rectangle", 2, 3)) == 6
    with pytest.raises(ValueError):
        area_of(("circle", 1))


@pytest.mark.parametrize("place", ["shapes", "shapes.area"])
def test_old_name_is_deprecated(place):
    module = __import__(place, fromlist=["calc"])
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert module.calc(("square", 2)) == 4
        assert module.calc(s=("square", 2)) == 4
    assert [one.category for one in seen] == [DeprecationWarning] * 2
    assert all("area_of" in str(one.message) and one.filename == __file__ for one in seen)


def test_old_name_is_gone_elsewhere():
    for name in ("report.py", "README.md", "shapes/cache.py"):
        assert not OLD.search(Path("/app", name).read_text()), name
    assert "area_of(shape)" in Path("/app/README.md").read_text()


def test_recalc_stays():
    import shapes

    assert shapes.recalc(("square", 5)) == 25
    assert "recalc" in shapes.__all__
    assert "area_of" in shapes.__all__
