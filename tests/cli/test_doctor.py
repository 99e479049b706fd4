"""`drydock doctor`: a table for people, a list for programs, an exit code for scripts."""

import json

import pytest
from typer.testing import CliRunner

from drydock.cli.main import app
from drydock.finding import Finding, Level

LEVELS = {"pass", "warn", "fail"}


def test_every_finding_has_a_level_and_a_remedy_where_one_is_needed() -> None:
    result = CliRunner().invoke(app, ["doctor", "--json"])
    findings = json.loads(result.output)
    assert {item["area"] for item in findings} == {"sandbox", "machine", "runs", "service"}
    for item in findings:
        assert set(item) == {"area", "name", "level", "detail", "remedy"}
        assert item["level"] in LEVELS
        assert bool(item["remedy"]) == (item["level"] != "pass")
    assert result.exit_code == (1 if any(item["level"] == "fail" for item in findings) else 0)


def test_what_is_missing_fails_and_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/nowhere")
    monkeypatch.setenv("COLUMNS", "300")
    result = CliRunner().invoke(app, ["doctor", "sandbox"])
    assert result.exit_code == 1
    assert "drydock sandbox build" in result.output


def test_an_unknown_area_is_refused() -> None:
    result = CliRunner().invoke(app, ["doctor", "plumbing"])
    assert result.exit_code == 2
    assert "there are sandbox" in result.output


def test_a_warning_is_no_failure() -> None:
    assert Finding("x", Level.WARN, "less", "more").ok
    assert not Finding("x", Level.FAIL, "none", "some").ok
    assert Finding("x", Level.PASS, "all", "none").remedy_needed == ""
