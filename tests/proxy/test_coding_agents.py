"""Claude Code and Codex, the programs that their makers publish, work through the proxy; skipped where not installed.

npm install --prefix FOLDER @anthropic-ai/claude-code @openai/codex
PATH=FOLDER/node_modules/.bin:$PATH python -m pytest tests/proxy/test_coding_agents.py
"""

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from builders.scripted_sampler import scripted

from drydock.proxy import ChatProxy, ChatTemplate, HermesParser, ProxySettings, RolloutSession, audit

CODEX_CONFIG = """
model = "policy"
model_provider = "drydock"
web_search = "disabled"
[model_providers.drydock]
name = "drydock"
base_url = "{base_url}"
env_key = "DRYDOCK_KEY"
wire_api = "responses"
"""


def call(tool: str, **arguments: str) -> str:
    return f"<tool_call>\n{json.dumps({'name': tool, 'arguments': arguments})}\n</tool_call>"


def claude_code(session: RolloutSession, home: Path) -> tuple[list[str], dict[str, str]]:
    environment = {
        "ANTHROPIC_BASE_URL": session.base_url.removesuffix("/v1"),
        "ANTHROPIC_API_KEY": session.api_key,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    return ["claude", "--model", "policy", "--allowedTools", "Bash", "-p", "Copy a.txt."], environment


def codex(session: RolloutSession, home: Path) -> tuple[list[str], dict[str, str]]:
    folder = home / ".codex"
    folder.mkdir()
    (folder / "config.toml").write_text(CODEX_CONFIG.format(base_url=session.base_url))
    options = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    return ["codex", "exec", *options, "Copy a.txt."], {"DRYDOCK_KEY": session.api_key}


@pytest.mark.parametrize(
    ("agent", "tool", "argument"), [(claude_code, "Bash", "command"), (codex, "exec_command", "cmd")]
)
async def test_it_finishes_its_task_on_one_branch(
    template: ChatTemplate, tmp_path: Path, agent: Any, tool: str, argument: str
) -> None:
    program = "claude" if agent is claude_code else "codex"
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    (work / "a.txt").write_text("hello\n")
    replies = [
        f"Look.\n{call(tool, **{argument: 'cat a.txt'})}",
        call(tool, **{argument: "wc -l a.txt"}) + call(tool, **{argument: "cp a.txt b.txt"}),
        "Copied.",
    ]
    settings = ProxySettings(context_tokens=200_000, max_new_tokens=400)
    async with ChatProxy(template, HermesParser(), scripted(template, replies), settings) as proxy:
        session = proxy.open_rollout("r")
        command, environment = agent(session, home)
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=work,
            env={"PATH": os.environ["PATH"], "HOME": str(home), **environment},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(90):
                shown, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        record = await session.close()
    assert "Copied." in shown.decode()
    assert (work / "b.txt").read_text() == "hello\n"
    assert len(record.turns) == len(replies)
    assert record.branch_reasons == {}
    (sample,) = record.samples
    text = template.decode(sample.token_ids)
    for reply in replies:
        assert f"<|im_start|>assistant\n{reply}<|im_end|>" in text
    assert audit(record).clean
