import json
import subprocess
import sys
from pathlib import Path

import pytest

STOCK = "/tests/stock.txt"


def inventory(*arguments, text=None):
    command = [sys.executable, "/app/inventory.py", *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=20)


def test_plain_output_stays():
    expected = "bolt           120      0.05\nnut             80      0.04\nplate            7     12.50\naxle             7     30.00\n"
    assert inventory(STOCK).stdout == expected


def test_json():
    found = json.loads(inventory("--json", STOCK).stdout)
    assert found[0] == {"name": "bolt", "count": 120, "price": 0.05}
    assert [item["name"] for item in found] == ["bolt", "nut", "plate", "axle"]


def test_json_of_nothing():
    assert json.loads(inventory("--json", "-", text="# nothing\n").stdout) == []


@pytest.mark.parametrize(
    ("key", "names"),
    [("name", "axle bolt nut plate"), ("count", "axle plate nut bolt"), ("price", "nut bolt plate axle")],
)
def test_sort(key, names):
    assert [item["name"] for item in json.loads(inventory("--sort", key, "--json", STOCK).stdout)] == names.split()


def test_min_count():
    assert [item["name"] for item in json.loads(inventory("--min-count", "80", "--json", STOCK).stdout)] == ["bolt", "nut"]
    refused = inventory("--min-count", "-1", STOCK)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "usage" in refused.stderr


def test_standard_input():
    assert inventory("-", text=Path(STOCK).read_text()).stdout == inventory(STOCK).stdout


@pytest.mark.parametrize("line", ["bolt;1", "bolt;x;1", "bolt;1;2;3", "bolt;1.5;2"])
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_unreadable_line(line, options):
    done = inventory("-", *options, text=f"nut;1;2\n\n{line}\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.strip() == f"-:3: cannot read: {line}"
