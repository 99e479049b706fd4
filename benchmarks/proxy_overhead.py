"""CPU time of the chat proxy per call, everything but sampling: HTTP, ledger, rendering, tokenizing, record, reply.

One client on one kept connection plays agent conversations with three tools and a long system prompt; the sampler
answers at once. The client's own JSON work is timed apart and taken out.

    python benchmarks/proxy_overhead.py --rollouts 20 --turns 20
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from builders.proxy_calls import call_text
from builders.tiny_tokenizer import build_tiny_tokenizer

from drydock.proxy import ChatProxy, ChatTemplate, HermesParser, ProxySettings, RolloutRecord, SampledTurn, audit
from drydock.wire.rest import SamplingParams

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "what it does " * 60,
            "parameters": {
                "type": "object",
                "properties": {key: {"type": "string", "description": "meaning " * 12} for key in "abcdef"},
            },
        },
    }
    for name in ("terminal", "task_tracker", "finish")
]


class InstantSampler:
    """Says the same thing at once."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.turn = SampledTurn(tuple(ids), tuple(-0.1234567 * n for n in range(len(ids))), 0, "stop", "")

    async def sample(self, prompt_ids: Sequence[int], params: SamplingParams, *, routing_key: str) -> SampledTurn:
        return self.turn


class Client:
    """The cheapest HTTP client there is; `cpu_s` is what its JSON work took."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer, self.cpu_s = reader, writer, 0.0

    async def post(self, key: str, body: dict[str, Any]) -> dict[str, Any]:
        started = time.process_time()
        content = json.dumps(body).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
        self.cpu_s += time.process_time() - started
        self.writer.write(head.encode() + b"Content-Length: %d\r\n\r\n" % len(content) + content)
        answer = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        content = await self.reader.readexactly(int(answer.split(b"content-length:")[1].split(b"\r\n")[0]))
        started = time.process_time()
        reply = json.loads(content)
        self.cpu_s += time.process_time() - started
        if b" 200 " not in answer:
            raise SystemExit(f"the proxy refused: {reply}")
        return reply


async def play(proxy: ChatProxy, client: Client, rollout: int, turns: int) -> RolloutRecord:
    """One rollout; each tool result is about 300 characters."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are an agent. " * 300},
        {"role": "user", "content": f"Task {rollout}. " * 20},
    ]
    async with proxy.open_rollout(f"r{rollout}") as session:
        for _ in range(turns):
            reply = await client.post(session.api_key, {"model": "policy", "messages": messages, "tools": TOOLS})
            message = reply["choices"][0]["message"]
            messages += [
                {key: message[key] for key in ("role", "content", "tool_calls")},
                {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "line of output\n" * 20},
            ]
    return session.record


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=20)
    parser.add_argument("--turns", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        template = ChatTemplate.load(build_tiny_tokenizer(Path(folder)))
        ids = [*template.encode(f"I look.\n{call_text('ls -la src; echo hello world')}"), template.turn_end_id]
        settings = ProxySettings(context_tokens=10**6, max_new_tokens=512, turn_log=Path(folder) / "turns")
        async with ChatProxy(template, HermesParser(), InstantSampler(ids), settings) as proxy:
            port = int(proxy.base_url.rsplit(":", 1)[1].split("/")[0])
            client = Client(*await asyncio.open_connection("127.0.0.1", port))
            cpu, wall = time.process_time(), time.perf_counter()
            records = [await play(proxy, client, rollout, options.turns) for rollout in range(options.rollouts)]
            cpu, wall = time.process_time() - cpu - client.cpu_s, time.perf_counter() - wall
            client.writer.close()
    if not all(audit(record).clean and not record.branch_reasons for record in records):
        raise SystemExit("the records do not audit clean")
    calls = options.rollouts * options.turns
    print(
        f"{calls} calls, last prompt {records[-1].turns[-1].prompt_length} tokens: "
        f"{cpu / calls * 1e3:.2f} ms CPU a call, {calls / wall:.0f} calls/s"
    )


if __name__ == "__main__":
    asyncio.run(main())
