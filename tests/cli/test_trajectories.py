"""`drydock trajectories show` and `export`, on a rollout that a real proxy recorded."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builders.recorded_rollout import REPLIES, recorded_rollout, write_run
from builders.tiny_tokenizer import build_tiny_tokenizer
from harbor.models.trajectories import Trajectory as AtifTrajectory
from typer.testing import CliRunner, Result

from drydock.chat.template import ChatTemplate
from drydock.cli.main import app
from drydock.errors import UserError
from drydock.proxy.record import RolloutRecord
from drydock.rollout.outcome import Outcome
from drydock.rollout.trajectory import Trajectory
from drydock.training.sft.conversations import read_conversations
from drydock.training.sft.rows import supervised_row

ESCAPE = "\x1b"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_tokenizer(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def template(model: Path) -> ChatTemplate:
    return ChatTemplate.load(model)


@pytest.fixture
async def trajectory(template: ChatTemplate) -> Trajectory:
    return await recorded_rollout(template)


@pytest.fixture
def file(trajectory: Trajectory, tmp_path: Path, model: Path) -> Path:
    return write_run(tmp_path / "run", trajectory, model)


def drydock(*arguments: object) -> Result:
    result = CliRunner().invoke(app, ["trajectories", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def sampled_spans(page: str) -> Iterator[str]:
    return (span[1] for span in re.finditer(r"⟦(.*?)⟧", page, re.DOTALL))


def test_every_turn_is_shown_between_marks_with_branches_reasons_and_times(file: Path) -> None:
    page = drydock("show", file).stdout
    assert list(sampled_spans(page)) == [f"{reply}<|im_end|>" for reply in REPLIES]
    assert "graded, reward 1, advantage 0.5, submitted" in page
    assert "agent 1.50 s" in page
    assert "turns 4, branches 2" in page
    assert "── branch 1, after turn 0: tool_changed" in page
    assert page.index("All done.") < page.index("── branch 1") < page.index("Again.")
    assert re.search(r"turn 3 .*\(trained\).*log-prob mean -\d+\.\d{4}  lowest -", page)


def test_a_page_that_nobody_colours_has_no_escapes_and_neither_has_what_a_tool_printed(file: Path) -> None:
    page = drydock("show", file).stdout
    assert ESCAPE not in page
    assert "out\u241b[2J" in page


def test_colours_follow_mask_and_probability(file: Path) -> None:
    page = drydock("show", file, "--color").stdout
    assert f"{ESCAPE}[2m<|im_start|>system" in page, "prompt is dim"
    first = page[page.index("⟦") :]
    # log-probs of the scripted sampler fall by 1/8 a token: from yellow down to white on red
    assert first.index(f"{ESCAPE}[33m") < first.index(f"{ESCAPE}[31m") < first.index(f"{ESCAPE}[1;37;41m")
    assert f"{ESCAPE}[2J" not in page


async def test_long_prompts_are_cut_unless_all_is_asked_for(
    template: ChatTemplate, tmp_path: Path, model: Path
) -> None:
    file = write_run(tmp_path / "run", await recorded_rollout(template, task="very " * 400 + "long."), model)
    whole, cut = drydock("show", file, "--full").stdout, drydock("show", file).stdout
    assert "very " * 400 in whole
    assert "characters …]" in cut
    assert len(cut) < len(whole) - 1000
    assert list(sampled_spans(cut)) == list(sampled_spans(whole)), "what was sampled is never cut"


def test_one_turn_shows_every_token(file: Path, trajectory: Trajectory) -> None:
    shown = json.loads(drydock("show", file, "--turn", 1, "--json").stdout)
    turn = trajectory.record.turns[1]
    sampled = [token for token in shown["tokens"] if token["logprob"] is not None]
    assert [token["id"] for token in sampled] == turn.sampled_ids
    assert [token["logprob"] for token in sampled] == turn.logprobs
    assert {token["mask"] for token in sampled} == {1}
    assert sampled[0]["place"] == turn.prompt_length
    assert "".join(token["text"] for token in sampled) == REPLIES[1] + "<|im_end|>"
    assert shown["parent"] == 0
    row = trajectory.record.samples[0].token_ids
    assert [token["id"] for token in shown["tokens"]] == row[shown["tokens"][0]["place"] :][: len(shown["tokens"])]
    table = drydock("show", file, "--turn", 1).stdout
    assert table.count("\n") == len(shown["tokens"]) + 3
    with pytest.raises(UserError, match="has no turn 7; it has 4"):
        drydock("show", file, "--turn", 7)


def test_programs_get_the_same_facts(file: Path) -> None:
    facts = json.loads(drydock("show", file, "--json").stdout)
    assert [branch["turns"] for branch in facts["branches"]] == [[0, 1, 2], [0, 3]]
    assert [turn["reason"] for turn in facts["turns"]] == [None, None, None, "tool_changed"]
    assert facts["branch_reasons"] == {"tool_changed": 1}
    assert facts["turns"][3]["given"] == [
        {"role": "tool", "content": "other", "tool_call_id": facts["turns"][0]["reply"]["tool_calls"][0]["id"]}
    ]
    assert sum(turn["sampled_tokens"] for turn in facts["turns"]) == facts["trained_tokens"]


def test_without_a_tokenizer_ids_are_shown_and_a_named_one_helps(
    file: Path, trajectory: Trajectory, model: Path, tmp_path: Path
) -> None:
    alone = tmp_path / "alone.json"
    alone.write_bytes(file.read_bytes())
    result = drydock("show", alone)
    ids = " ".join(map(str, trajectory.record.turns[2].sampled_ids))
    assert f"⟦{ids} ⟧" in result.stdout
    assert "--model" in result.stderr
    assert "All done." in drydock("show", alone, "--model", model).stdout


def test_atif_holds_every_branch_and_marks_what_it_does_not_train(file: Path, trajectory: Trajectory) -> None:
    raw = json.loads(drydock("export", file, "--format", "atif").stdout)
    document = AtifTrajectory.model_validate(raw)
    assert document.schema_version == "ATIF-v1.8"
    assert document.session_id == "run-task-0"
    assert document.agent.tool_definitions == trajectory.record.tool_sets[0]
    assert [step.source for step in document.steps] == ["system", "user", "agent", "agent", "agent"]
    assert document.extra is not None
    assert document.extra["reward"] == 1.0
    first = document.steps[2]
    assert first.message == "Look."
    assert first.tool_calls is not None
    assert first.observation is not None
    assert first.tool_calls[0].arguments == {"command": "ls é你"}
    assert first.observation.results[0].source_call_id == first.tool_calls[0].tool_call_id
    assert document.subagent_trajectories is not None
    (other,) = document.subagent_trajectories
    assert other.extra == {"branch": 1, "branched": [{"turn": 3, "reason": "tool_changed"}]}
    steps = [step for one in (document, other) for step in one.steps if step.source == "agent"]
    trained = [step for step in steps if not step.is_copied_context]
    turns = {step.extra["turn"]: step for step in trained if step.extra}
    assert sorted(turns) == [0, 1, 2, 3]
    assert len(steps) == 5, "turn 0 is in both, and trained in one"
    for index, step in turns.items():
        assert step.metrics is not None
        assert step.metrics.completion_token_ids == trajectory.record.turns[index].sampled_ids
        assert step.metrics.logprobs == trajectory.record.turns[index].logprobs
        assert step.metrics.prompt_token_ids is None


def test_atif_can_hold_the_prompts_and_goes_into_a_folder(file: Path, trajectory: Trajectory, tmp_path: Path) -> None:
    drydock("export", file, "--format", "atif", "--prompt-ids", "-o", tmp_path / "out")
    (written,) = (tmp_path / "out").iterdir()
    document = AtifTrajectory.model_validate_json(written.read_text(encoding="utf-8"))
    metrics = document.steps[4].metrics
    assert metrics is not None
    row = trajectory.record.samples[0].token_ids
    assert [*(metrics.prompt_token_ids or []), *(metrics.completion_token_ids or [])] == row


def test_sft_lines_have_the_tokens_of_the_rollout_when_drydock_sft_reads_them(
    file: Path, trajectory: Trajectory, template: ChatTemplate, tmp_path: Path
) -> None:
    out = tmp_path / "data" / "train.jsonl"
    drydock("export", file.parents[3], "--format", "sft", "--histories", "all", "-o", out)
    conversations = read_conversations(out, "data.train")
    assert len(conversations) == 2
    for conversation, sample in zip(conversations, trajectory.record.samples, strict=True):
        row = supervised_row(conversation.messages, conversation.tools, template, conversation.origin)
        assert row.token_ids == sample.token_ids
    assert conversations[0].tools == trajectory.record.tool_sets[0]
    drydock("export", file, "--format", "sft", "-o", out)
    (last,) = read_conversations(out, "data.train")
    assert last.messages[-1].text == "Again."


@pytest.mark.parametrize("form", ["sft", "atif"])
def test_rollouts_below_the_reward_are_left_out_and_nothing_is_no_file(
    form: str, trajectory: Trajectory, tmp_path: Path
) -> None:
    poor = trajectory.model_copy(update={"reward": 0.5}).write(tmp_path / "poor")
    ungraded = trajectory.model_copy(update={"reward": None}).write(tmp_path / "ungraded")
    with pytest.raises(UserError, match="nothing to export"):
        drydock("export", poor, ungraded, "--format", form, "--min-reward", 1, "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    drydock("export", poor, ungraded, "--format", form, "--min-reward", 0.5, "-o", tmp_path / "out")
    assert (tmp_path / "out").exists()


def test_what_cannot_be_a_conversation_is_named(trajectory: Trajectory, tmp_path: Path) -> None:
    silent = trajectory.model_copy(deep=True, update={"rollout_id": "silent"})
    silent.record.turns[3].reply = {"role": "assistant", "content": ""}
    empty = trajectory.model_copy(update={"rollout_id": "empty", "record": RolloutRecord(rollout_id="empty")})
    files = [one.write(tmp_path / one.rollout_id) for one in (trajectory, silent, empty)]
    result = drydock("export", *files, "--format", "sft")
    assert len(result.stdout.splitlines()) == 1
    assert "left out silent up to turn 3: a turn in it says nothing" in result.stderr
    assert "left out empty: it has no sampled turn" in result.stderr


@pytest.mark.parametrize("command", [("show",), ("export", "--format", "sft")])
def test_files_that_are_no_trajectories_are_named(command: tuple[str, ...], tmp_path: Path) -> None:
    other = tmp_path / "x.json"
    other.write_text("{}")
    with pytest.raises(UserError, match=r"x\.json is not a trajectory file"):
        drydock(*command, other)
    with pytest.raises(UserError, match="No such file"):
        drydock(*command, tmp_path / "missing.json")


def test_of_a_folder_its_rollouts_are_listed_and_of_a_large_one_its_folders(
    file: Path, trajectory: Trajectory, tmp_path: Path
) -> None:
    (tmp_path / "run" / "checkpoints" / "step_1").mkdir(parents=True)
    (tmp_path / "run" / "checkpoints" / "step_1" / "config.json").write_text("{}")
    for folder in (tmp_path / "run", file.parents[1], file.parent):
        listed = drydock("show", folder).stdout
        assert re.search(rf"{re.escape(str(file))}\s+graded\s+1\s+4\s", listed)
        assert f"1 rollout; show one with: drydock trajectories show {file}" in listed
    broken = trajectory.model_copy(update={"outcome": Outcome.SANDBOX_ERROR, "reward": None, "step": 2})
    for repetition in range(1, 65):
        broken.model_copy(update={"repetition": repetition}).write(file.parents[2] / "step_2" / "train")
    listed = drydock("show", tmp_path / "run").stdout
    assert re.search(rf"{re.escape(str(file.parents[2]))}/step_2/train\s+64\s+64\s", listed)
    assert "65 rollouts; show one with" in listed


def test_a_folder_without_trajectories_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is a folder without trajectory files"):
        drydock("show", tmp_path)
    with pytest.raises(UserError, match="holds no trajectory files"):
        drydock("export", tmp_path, "--format", "atif")


def test_arguments_that_are_no_object_are_kept_beside_an_empty_one(trajectory: Trajectory, tmp_path: Path) -> None:
    call: dict[str, Any] = trajectory.record.turns[0].reply["tool_calls"][0]
    call["function"]["arguments"] = '{"command": "ls'
    raw = json.loads(drydock("export", trajectory.write(tmp_path), "--format", "atif").stdout)
    step = AtifTrajectory.model_validate(raw).steps[2]
    assert step.tool_calls is not None
    assert step.tool_calls[0].arguments == {}
    assert step.tool_calls[0].extra == {"arguments_text": '{"command": "ls'}
