"""The demo's tasks, demonstrations and model: deterministic, disjoint, solvable, and true to the real sandbox."""

import dataclasses
import hashlib
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from builders.conversations import replies_of
from builders.policy import by_turn

from drydock.chat.parsers.hermes import HermesParser
from drydock.chat.template import ChatTemplate
from drydock.errors import ConfigError
from drydock.harness.prompt import system_prompt
from drydock.proxy.server import ChatProxy
from drydock.proxy.settings import ProxySettings
from drydock.recipes.shell_tasks import demonstration
from drydock.recipes.shell_tasks.demonstration import clean_demonstration, sloppy_demonstration
from drydock.recipes.shell_tasks.prepare import DemoData, prepare
from drydock.recipes.shell_tasks.task import Kind, ShellTask, draw_task
from drydock.recipes.shell_tasks.task_folder import write_task_folder
from drydock.rollout import Outcome, RolloutSettings, RolloutSpec, preflight_task, run_rollout
from drydock.rollout.reward import RewardRule, read_reward
from drydock.rollout.trial import run_trial
from drydock.sandbox.requirements import check_local
from drydock.training.config_file import load_run_config
from drydock.training.plan import plan_run

SMALL = DemoData(seed=5, train_tasks=12, held_out_tasks=6, clean_demonstrations=40, sloppy_demonstrations=20)
SANDBOX = "local" if all(requirement.ok for requirement in check_local()) else "host"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(tmp_path_factory.mktemp("demo") / "data", SMALL)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RolloutSettings:
    monkeypatch.setenv("HARBOR_ALLOW_HOST_EXEC", "1")
    return RolloutSettings(
        environment=SANDBOX,
        environment_kwargs={"state_dir": str(tmp_path / "sandboxes")},
        agent_kwargs={"tools": ["terminal", "finish"], "max_turns": 6, "command_timeout_s": 20.0},
        work_dir=tmp_path / "trials",
    )


def drawn(kind: Kind, count: int, seed: str = "drawn") -> list[ShellTask]:
    """`count` different tasks of one kind."""
    rng = random.Random(seed)
    tasks: list[ShellTask] = []
    while len(tasks) < count:
        task = draw_task(rng, f"{kind.value}-{len(tasks)}")
        if task.kind is kind:
            tasks.append(task)
    return tasks


def digests(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def instructions(folder: Path) -> list[str]:
    return [file.read_text() for file in sorted(folder.glob("*/instruction.md"))]


def test_the_same_seed_writes_the_same_bytes(small: Path, tmp_path: Path) -> None:
    assert digests(prepare(tmp_path / "again", SMALL)) == digests(small)


def test_another_seed_writes_other_tasks_and_another_model(small: Path, tmp_path: Path) -> None:
    other = prepare(tmp_path / "other", dataclasses.replace(SMALL, seed=6))
    assert set(instructions(other / "train")) != set(instructions(small / "train"))
    for name in ("demonstrations/clean.jsonl", "model/model.safetensors"):
        assert digests(other)[name] != digests(small)[name]


def test_no_held_out_task_and_no_demonstration_is_a_training_task(small: Path) -> None:
    train, held_out = instructions(small / "train"), instructions(small / "held_out")
    assert (len(train), len(held_out)) == (12, 6)
    lines = [line for file in (small / "demonstrations").iterdir() for line in file.read_text().splitlines()]
    shown = [json.loads(line)["messages"][0]["content"] + "\n" for line in lines]
    assert len(shown) == 60
    everything = [*train, *held_out, *shown]
    assert len(set(everything)) == len(everything)


def test_the_default_sizes_give_a_whole_run_in_one_pass() -> None:
    sizes = DemoData()
    shipped = Path(demonstration.__file__).with_name("run.toml")
    trainer = load_run_config(shipped).trainer
    assert trainer.max_training_steps is not None
    assert sizes.train_tasks >= trainer.max_training_steps * trainer.train_batch_size
    assert sizes.held_out_tasks >= 32


def test_both_kinds_are_in_both_splits(small: Path) -> None:
    for split in ("train", "held_out"):
        found = {line for file in small.glob(f"{split}/*/task.toml") for line in file.read_text().splitlines()}
        assert {'kind = "write"', 'kind = "find"'} <= found


def test_preparing_again_does_nothing_and_other_settings_make_it_anew(tmp_path: Path) -> None:
    few = DemoData(train_tasks=2, held_out_tasks=1, clean_demonstrations=2, sloppy_demonstrations=2)
    folder = prepare(tmp_path / "data", few)
    before = (folder / "prepared.json").stat().st_mtime_ns
    prepare(folder, few)
    assert (folder / "prepared.json").stat().st_mtime_ns == before
    prepare(folder, dataclasses.replace(few, train_tasks=1))
    assert [path.name for path in (folder / "train").iterdir()] == ["train-0000"]


def test_a_foreign_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(ConfigError, match="was not written by"):
        prepare(tmp_path, SMALL)
    with pytest.raises(ConfigError, match="was not written by"):
        prepare(tmp_path / "mine", SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_an_interrupted_preparation_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    few = DemoData(train_tasks=2, held_out_tasks=1, clean_demonstrations=2, sloppy_demonstrations=2)
    with monkeypatch.context() as patch:
        patch.setattr("drydock.recipes.shell_tasks.prepare.write_tiny_model", interrupted)
        with pytest.raises(KeyboardInterrupt):
            prepare(tmp_path / "data", few)
    assert not (tmp_path / "data").exists()
    prepare(tmp_path / "data", few)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_the_shipped_configuration_is_a_run_on_what_was_prepared(small: Path) -> None:
    config = load_run_config(small / "run.toml", ["trainer.train_batch_size=4", "trainer.policy_mini_batch_size=4"])
    plan = plan_run(config)
    assert (len(plan.train_tasks), len(plan.eval_tasks)) == (12, 6)
    assert all(stage.conversations.is_file() for stage in config.warm_start)
    assert Path(config.trainer.policy.model.path).is_dir()
    assert system_prompt(config.agent.system_prompt_file, config.agent.tools, max_turns=config.generator.max_turns)


@pytest.mark.parametrize("kind", list(Kind))
async def test_the_solution_earns_1_and_nothing_earns_0(tmp_path: Path, settings: RolloutSettings, kind: Kind) -> None:
    oracle = settings.model_copy(update={"agent": "oracle", "agent_kwargs": {}})
    for task in drawn(kind, 2):
        folder = write_task_folder(task, tmp_path)
        end = await run_trial(RolloutSpec(task.name, folder, 1, "train", 0), oracle)
        assert end.failure is None
        assert read_reward(end.rewards, RewardRule()) == (1.0, None)
        assert (await preflight_task(folder, settings)).reward == 0.0


@pytest.mark.parametrize("kind", list(Kind))
async def test_demonstrations_show_what_the_sandbox_really_prints(
    small: Path, tmp_path: Path, settings: RolloutSettings, kind: Kind
) -> None:
    template = ChatTemplate.load(small / "model")
    rng = random.Random("sloppy")
    shown = [(task, clean_demonstration(task), 1.0) for task in drawn(kind, 2)]
    shown += [
        (dataclasses.replace(task, name=f"sloppy-{task.name}"), sloppy_demonstration(task, rng), 0.0)
        for task in drawn(kind, 6, "other")
    ]
    limits = ProxySettings(context_tokens=4000, max_new_tokens=200)
    for task, conversation, reward in shown:
        folder = write_task_folder(task, tmp_path / "tasks")
        sampler = by_turn(template, replies_of(conversation))
        async with ChatProxy(template, HermesParser(), sampler, limits) as proxy:
            trajectory = await run_rollout(RolloutSpec(task.name, folder, 1, "train", 0), settings, proxy)
        assert (trajectory.outcome, trajectory.reward) == (Outcome.GRADED, reward), trajectory.error
        real = [message["content"] for message in trajectory.record.messages if message["role"] == "tool"]
        told = [message["content"] for message in conversation if message["role"] == "tool"]
        assert real[: len(told)] == told


def test_a_searched_name_is_in_one_file_only() -> None:
    for task in drawn(Kind.FIND, 300):
        assert [path for path, content in task.files.items() if task.function in content] == [task.answer]


def test_the_model_is_one_that_transformers_loads(small: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(small / "model")
    tokenizer = AutoTokenizer.from_pretrained(small / "model")
    assert type(model).__name__ == "Qwen3ForCausalLM"
    assert model.get_input_embeddings().weight.shape[0] >= len(tokenizer)
    assert tokenizer.eos_token_id == model.config.eos_token_id
    assert max(p.std().item() for n, p in model.named_parameters() if "embed" in n) == pytest.approx(128**-0.5, rel=0.1)
    messages = [{"role": "user", "content": "Put apple into out.txt."}]
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    with torch.no_grad():
        logits = model(**ids).logits
    assert logits.shape[-1] == model.config.vocab_size
    assert torch.isfinite(logits).all()


def test_transformers_and_the_proxy_render_the_same_tokens(small: Path) -> None:
    from transformers import AutoTokenizer

    from drydock.harness.tool_schemas import tool_schemas

    template, tokenizer = ChatTemplate.load(small / "model"), AutoTokenizer.from_pretrained(small / "model")
    tools = tool_schemas(["terminal", "finish"])
    messages = [{"role": "system", "content": "Be brief."}, *clean_demonstration(drawn(Kind.FIND, 1)[0])]
    rendered = tokenizer.apply_chat_template(messages, tools=tools, tokenize=False)
    assert template.render(messages, tools, False) == rendered
    assert template.encode(rendered) == tokenizer(rendered, add_special_tokens=False)["input_ids"]
    assert template.stop_ids == (tokenizer.convert_tokens_to_ids("<|endoftext|>"), tokenizer.eos_token_id)


def test_every_byte_can_be_written_and_read_back(small: Path) -> None:
    template = ChatTemplate.load(small / "model")
    text = "".join(chr(code) for code in range(32, 0x250)) + "日本 🙂\n\t"
    assert template.decode(template.encode(text)) == text


def test_scripts_are_executable(small: Path) -> None:
    scripts = list(small.glob("*/*/tests/test.sh")) + list(small.glob("*/*/solution/solve.sh"))
    assert len(scripts) == 36
    assert all(os.access(script, os.X_OK) for script in scripts)
