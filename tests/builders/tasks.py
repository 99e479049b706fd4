"""Harbor task directories for tests, written as a user would write them."""

from pathlib import Path

DOCKERFILE = "FROM debian:bookworm-slim\nWORKDIR /app\n"

PASS_IF_ANSWER_IS_HELLO = """\
if [ "$(cat /app/answer.txt 2>/dev/null)" = "hello" ]; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
"""


def write_task(
    directory: Path,
    *,
    instruction: str = "Write the word hello into /app/answer.txt.",
    dockerfile: str = DOCKERFILE,
    test: str = PASS_IF_ANSWER_IS_HELLO,
    solution: str = "echo hello > /app/answer.txt\n",
    agent_timeout_s: float | None = 60.0,
    verifier_timeout_s: float = 60.0,
    toml: str = "",
) -> Path:
    """Write a complete task into `directory` and return it; `toml` is appended to its task.toml."""
    for folder in ("environment", "tests", "solution"):
        (directory / folder).mkdir(parents=True, exist_ok=True)
    limit = f"\n[agent]\ntimeout_sec = {agent_timeout_s}\n" if agent_timeout_s is not None else ""
    (directory / "task.toml").write_text(
        f'schema_version = "1.4"\n{limit}\n[verifier]\ntimeout_sec = {verifier_timeout_s}\n\n'
        f'[environment]\nnetwork_mode = "no-network"\nbuild_timeout_sec = 120.0\n\n{toml}'
    )
    (directory / "instruction.md").write_text(instruction + "\n")
    (directory / "environment" / "Dockerfile").write_text(dockerfile)
    (directory / "tests" / "test.sh").write_text(f"#!/bin/bash\n{test}")
    (directory / "solution" / "solve.sh").write_text(f"#!/bin/bash\n{solution}")
    return directory
