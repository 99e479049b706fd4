"""A shell task as an ordinary Harbor task directory."""

from pathlib import Path

from drydock.recipes.shell_tasks.task import ShellTask

TASK_TOML = """\
schema_version = "1.4"

[task]
name = "drydock-demo/{name}"

[metadata]
kind = "{kind}"

[agent]
timeout_sec = 60.0

[verifier]
timeout_sec = 30.0

[environment]
build_timeout_sec = 120.0
cpus = 1
memory_mb = 512
network_mode = "no-network"
"""

DOCKERFILE = "FROM debian:bookworm-slim\nWORKDIR /app\n"
COPY_TREE = "COPY tree/ /app/\n"

TEST_SCRIPT = """\
#!/bin/bash
answer=$(tr -d '[:space:]' < /app/{target} 2>/dev/null)
if [ "${{answer#./}}" = "{answer}" ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""


def write_task_folder(task: ShellTask, parent: Path) -> Path:
    """Write `task` to `parent/<name>` and return that directory."""
    folder = parent / task.name
    tree = folder / "environment" / "tree"
    for relative, content in task.files.items():
        file = tree / relative
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    _write(folder / "environment" / "Dockerfile", DOCKERFILE + (COPY_TREE if task.files else ""))
    _write(folder / "instruction.md", task.instruction)
    _write(folder / "task.toml", TASK_TOML.format(name=task.name, kind=task.kind.value))
    _write(folder / "tests" / "test.sh", TEST_SCRIPT.format(target=task.target, answer=task.answer), executable=True)
    _write(folder / "solution" / "solve.sh", f"#!/bin/bash\ncd /app && {task.solution}\n", executable=True)
    return folder


def _write(file: Path, text: str, *, executable: bool = False) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    if executable:
        file.chmod(0o755)
