"""What is wrong with a task's files, by file and line."""

import os
import tomllib
from pathlib import Path

import pytest
import tomli_w
from builders.tasks import write_task
from hypothesis import given, settings
from hypothesis import strategies as st

from drydock.errors import ConfigError
from drydock.rollout.task_folder import flaws_of, task_folders
from drydock.rollout.toml_lines import line_of

TOML = """\
schema_version = "1.4"

[agent]
timeout_sec = 10.0

[environment]
memory_mb = 512
"""


def test_a_task_without_flaws(tmp_path):
    assert flaws_of(write_task(tmp_path / "t")) == []


@pytest.mark.parametrize(
    ("toml", "flaw"),
    [
        ("[agent\n", "task.toml:1: Expected ']' at the end of a table declaration"),
        (TOML.replace("10.0", '"soon"'), "task.toml:4: agent.timeout_sec: Input should be a valid number"),
        (TOML.replace("512", "1.5"), "task.toml:7: environment.memory_mb: Input should be a valid integer"),
        (TOML + '[verifier]\nenvironment_mode = "own"\n', "task.toml:9: verifier.environment_mode: Input should be"),
        (TOML + '[[steps]]\nname = "a"\n\n[[steps]]\nagent = 3\nname = "b"\n', "task.toml:12: steps.1.agent: Input"),
        (TOML + '[metadata]\nfull_reward = "all"\n', "task.toml:9: metadata.full_reward: 'all' is no finite number"),
        (TOML + "memroy_mb = 5\n", "task.toml:8: environment.memroy_mb: unknown to Harbor and without effect; did you"),
        (
            TOML + '[verifer]\nuser = "root"\n',
            "task.toml:8: verifer: unknown to Harbor and without effect; did you mean",
        ),
        (TOML + '[[steps]]\nname = "a"\nmin_rewards = 1\n', "task.toml:10: steps.0.min_rewards: unknown to Harbor"),
        (TOML + '[[steps]]\nname = "one"\n', "steps/one/instruction.md: missing"),
    ],
)
def test_flaws_of_the_configuration(tmp_path, toml, flaw):
    task = write_task(tmp_path / "t")
    (task / "task.toml").write_text(toml)
    found = flaws_of(task)
    assert found[0].startswith(f"{task}/{flaw}"), found


@pytest.mark.parametrize(
    "toml",
    [
        'version = "1.0"\n[metadata]\ntimeout_sek = 1\n',
        '[environment]\nmemory = "1G"\nallow_internet = false\n',
        "[own]\n",
    ],
)
def test_old_and_foreign_keys_are_no_flaws(tmp_path, toml, recwarn):
    task = write_task(tmp_path / "t")
    (task / "task.toml").write_text(toml)
    assert flaws_of(task) == []


def test_a_missing_configuration(tmp_path):
    task = write_task(tmp_path / "t")
    (task / "task.toml").unlink()
    assert flaws_of(task) == [f"{task}/task.toml: missing; a task needs one, if only with schema_version"]


def test_an_instruction_that_is_missing_or_empty(tmp_path):
    task = write_task(tmp_path / "t")
    (task / "instruction.md").write_text(" \n")
    assert flaws_of(task) == [f"{task}/instruction.md:1: empty; it is what the agent is told"]
    (task / "instruction.md").unlink()
    assert flaws_of(task) == [f"{task}/instruction.md: missing; it is what the agent is told"]


def test_a_missing_verifier(tmp_path):
    task = write_task(tmp_path / "t")
    (task / "tests" / "test.sh").unlink()
    (flaw,) = flaws_of(task)
    assert "tests/test.sh" in flaw


@pytest.mark.parametrize("script", ["tests/test.sh", "solution/solve.sh"])
def test_a_script_that_bash_cannot_parse(tmp_path, script):
    task = write_task(tmp_path / "t")
    (task / script).write_text("#!/bin/bash\necho fine\nif true; then\necho )\n")
    (flaw,) = flaws_of(task)
    assert flaw.startswith(f"{task}/{script}:4: syntax error"), flaw


def test_a_script_of_another_language_is_not_read_as_bash(tmp_path):
    task = write_task(tmp_path / "t")
    (task / "tests" / "test.sh").write_text("#!/usr/bin/env python3\nprint(f'{1 + 1}')\nif True: pass\n")
    assert flaws_of(task) == []


def test_a_pipe_is_found_and_not_read(tmp_path):
    task = write_task(tmp_path / "t")
    os.mkfifo(task / "tests" / "solve.sh")
    (flaw,) = flaws_of(task)
    assert flaw.startswith(f"{task}/tests/solve.sh: neither a file nor a folder nor a link")


@pytest.mark.parametrize(
    ("toml", "flaws"),
    [
        (TOML.replace("10.0", "0"), ["task.toml:4: agent.timeout_sec: 0.0 is no amount"]),
        (TOML.replace("10.0", "nan"), ["task.toml:4: agent.timeout_sec: nan is no amount"]),
        (TOML.replace("512", "0") + "cpus = 0\n", []),
        (TOML + "cpus = -1\n", ["task.toml:8: environment.cpus: -1"]),
        (
            TOML + '[[verifier.collect]]\ncommand = "true"\ntimeout_sec = -1.0\n',
            ["task.toml:10: verifier.collect.0.timeout_sec: -1.0 is no amount"],
        ),
        (
            TOML + '[environment.healthcheck]\ncommand = "true"\ninterval_sec = 0\ntimeout_sec = -2.0\n',
            ["task.toml:11: environment.healthcheck.timeout_sec: -2.0 is no amount"],
        ),
        (
            TOML + '[verifier.env]\n"" = "1"\nB = "\\u0000"\n',
            ["task.toml:9: verifier.env.: no process can have", "task.toml:10: verifier.env.B: the value holds a NUL"],
        ),
    ],
)
def test_values_that_nothing_can_honour_are_named_by_line(tmp_path, toml, flaws):
    task = write_task(tmp_path / "t")
    (task / "task.toml").write_text(toml)
    found = flaws_of(task)
    assert len(found) == len(flaws), found
    for flaw, expected in zip(found, flaws, strict=True):
        assert flaw.startswith(f"{task}/{expected}")


def test_an_instruction_that_is_no_utf8_and_lines_that_end_in_crlf(tmp_path):
    task = write_task(tmp_path / "t")
    (task / "instruction.md").write_bytes(b"One.\n\xe4\n")
    (task / "solution" / "solve.sh").write_bytes(b"#!/bin/sh\r\ntrue\r\n")
    assert [flaw.removeprefix(f"{task}/").split("; ")[0] for flaw in flaws_of(task)] == [
        "instruction.md:2: not UTF-8 (invalid continuation byte)",
        "solution/solve.sh:1: the lines end in CRLF, with which no interpreter is found",
    ]


def test_steps_and_their_folders_belong_together(tmp_path):
    task = write_task(tmp_path / "t", toml='[[steps]]\nname = "one"\n')
    for name in ("one", "tow"):
        (task / "steps" / name).mkdir(parents=True)
        (task / "steps" / name / "instruction.md").write_text("Go on.\n")
    assert flaws_of(task) == [
        f"{task}/steps/tow: no [[steps]] of task.toml has this name; add one or remove the folder"
    ]


def test_finding_tasks(tmp_path):
    one = write_task(tmp_path / "set" / "b")
    (tmp_path / "set" / "a").mkdir()
    (tmp_path / "set" / "a" / "task.toml").write_text("")
    (tmp_path / "set" / "notes").mkdir()
    assert task_folders(tmp_path / "set") == [tmp_path / "set" / "a", one]
    assert task_folders(one) == [one]
    with pytest.raises(ConfigError, match="no Harbor task in"):
        task_folders(tmp_path / "set" / "notes")
    with pytest.raises(ConfigError, match="is no directory"):
        task_folders(tmp_path / "nowhere")


KEYS = st.text("abcdefgh_", min_size=1, max_size=8)
TABLES = st.dictionaries(KEYS, st.integers() | st.dictionaries(KEYS, st.integers(), min_size=1), min_size=1)


@settings(deadline=None, max_examples=50)
@given(TABLES)
def test_the_line_of_each_value_is_where_it_stands(document):
    text = tomli_w.dumps(document)
    lines = text.splitlines()
    for key, value in document.items():
        if isinstance(value, int):
            assert tomllib.loads(lines[line_of(text, (key,)) - 1]) == {key: value}
            continue
        assert lines[line_of(text, (key,)) - 1] == f"[{key}]"
        for inner, number in value.items():
            assert tomllib.loads(lines[line_of(text, (key, inner)) - 1]) == {inner: number}


def test_a_task_folder_is_not_changed(tmp_path):
    task = write_task(tmp_path / "t")
    before = sorted((path, path.stat().st_mtime_ns) for path in Path(task).rglob("*"))
    flaws_of(task)
    assert sorted((path, path.stat().st_mtime_ns) for path in Path(task).rglob("*")) == before
