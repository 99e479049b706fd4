"""A miniature of the demo: its real data, few and short; and a configuration for it."""

from pathlib import Path

from drydock.recipes.shell_tasks.prepare import DemoData, prepare

RUN = """\
[trainer]
run_name = "mini"
max_training_steps = 2
train_batch_size = 2
eval_before_train = true
eval_after_train = true
save_final_checkpoint = true

[trainer.policy.model]
path = "model"

[trainer.policy.optimizer_config]
lr = 3e-4

[generator]
n_samples_per_prompt = 2
max_turns = 2
max_input_length = 512
num_parallel_generation_workers = 4
unsubmitted = "grade"

[generator.sampling_params]
max_generate_length = 16

[data]
train = ["train"]
eval = ["held_out"]

[agent]
tools = ["terminal", "finish"]
system_prompt_file = "system_prompt.j2"

[[warm_start]]
conversations = "demonstrations/clean.jsonl"
steps = 3
batch_size = 4
lr = 1e-3
"""

DIFFERENT_REWARDS = "#!/bin/bash\ndate +0.1%N > /logs/verifier/reward.txt\n"
"""A verifier whose reward is another one each time, so that every group has a signal."""

SLOW = "#!/bin/bash\nsleep 1\necho 0 > /logs/verifier/reward.txt\n"
NO_REWARD = "#!/bin/bash\necho the checker is broken\n"


def build_demo_run(folder: Path, *, train_tasks: int = 4, verifier: str | None = None) -> Path:
    """Write data and `run.toml` into `folder` and return the latter; `verifier` replaces that of the training tasks."""
    sizes = DemoData(train_tasks=train_tasks, held_out_tasks=2, clean_demonstrations=30, sloppy_demonstrations=2)
    prepare(folder, sizes)
    if verifier is not None:
        for script in folder.glob("train/*/tests/test.sh"):
            script.write_text(verifier)
    (folder / "run.toml").write_text(RUN)
    return folder / "run.toml"
