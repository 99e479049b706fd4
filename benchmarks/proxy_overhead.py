"""What the chat proxy adds to sampling: CPU of its process a call, and wall time at 64 concurrent rollouts.

    python benchmarks/proxy_overhead.py [curve|wall ...] [--tokens 2000 10000 20000 50000] [--latency 2]

Agents live in a process of their own, one kept connection each, and play conversations with three tools: a tool result
of about 400 tokens a turn, 60 sampled ones. Each history first grows to its length, unmeasured; then come the turns
that count. Everything but sampling and the agents is in the figures: HTTP, JSON, ledger, rendering, tokenizing,
hashing, record, turn log, reply.

curve: CPU a call by length of the history, sampler without latency, 8 rollouts. Where the time goes is told by
`--profile`, with its own cost in it.
wall: 64 rollouts at once, each turn sampled in `--latency` seconds, against as many callers of the sampler itself.
"""

import argparse
import asyncio
import cProfile
import json
import multiprocessing
import pstats
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from builders.proxy_calls import call_text
from builders.tiny_tokenizer import SPECIAL, build_tiny_tokenizer
from tokenizers import Tokenizer, pre_tokenizers, trainers

import drydock
from drydock.proxy import ChatProxy, ChatTemplate, HermesParser, ProxySettings, SampledTurn, audit
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
SOURCES = "".join(path.read_text(encoding="utf-8") for path in sorted(Path(drydock.__file__).parent.rglob("*.py")))
RESULT_CHARACTERS = 1600


def build_tokenizer(folder: Path) -> Path:
    """A tokenizer that needs about as many tokens for code as those of real models do (3.5 to 4 characters each)."""
    build_tiny_tokenizer(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=8000, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([SOURCES, json.dumps(TOOLS)], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


class FixedSampler:
    """Says the same thing after `latency_s`."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.turn = SampledTurn(tuple(ids), tuple(-0.1234567 * n for n in range(len(ids))), 0, "stop", "")
        self.latency_s = 0.0

    async def sample(self, prompt_ids: Sequence[int], params: SamplingParams, *, routing_key: str) -> SampledTurn:
        await asyncio.sleep(self.latency_s)
        return self.turn


@dataclass
class Agent:
    """The cheapest HTTP client there is, and the conversation that it holds."""

    key: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    messages: list[dict[str, Any]]
    body_bytes: int = 0
    seconds: list[float] = field(default_factory=list)

    async def turn(self) -> int:
        """One call; returns its prompt's length in tokens."""
        content = json.dumps({"model": "policy", "messages": self.messages, "tools": TOOLS}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.key}\r\n"
        started = time.perf_counter()
        self.writer.write(head.encode() + b"Content-Length: %d\r\n\r\n" % len(content) + content)
        answer = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        reply = json.loads(await self.reader.readexactly(int(answer.split(b"content-length:")[1].split(b"\r\n")[0])))
        self.seconds.append(time.perf_counter() - started)
        if b" 200 " not in answer:
            raise SystemExit(f"the proxy refused: {reply}")
        self.body_bytes = len(content)
        message = reply["choices"][0]["message"]
        self.messages += [
            {key: message[key] for key in ("role", "content", "tool_calls")},
            {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": self.output()},
        ]
        return reply["usage"]["prompt_tokens"]

    def output(self) -> str:
        """Another piece of code each time."""
        start = (hash(self.key) + len(self.messages) * 7919) % (len(SOURCES) - RESULT_CHARACTERS)
        return SOURCES[start : start + RESULT_CHARACTERS]

    async def grow(self, tokens: int) -> None:
        """Until the next prompt has about so many."""
        while await self.turn() < tokens - 500:
            pass
        self.seconds.clear()


def agents(port: int, keys: list[str], tokens: int, turns: int, parent: Connection) -> None:
    """The agents' process: histories grow, a word from the parent, then the turns that count."""

    async def play() -> tuple[float, int, float]:
        team: list[Agent] = []
        for number, key in enumerate(keys):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            start = [
                {"role": "system", "content": "You are an agent. " * 60},
                {"role": "user", "content": f"Task {number}. " * 20},
            ]
            team.append(Agent(key, reader, writer, start))
        await asyncio.gather(*(agent.grow(tokens) for agent in team))
        parent.send("grown")
        parent.recv()

        async def work(agent: Agent) -> None:
            for _ in range(turns):
                await agent.turn()

        started = time.perf_counter()
        await asyncio.gather(*map(work, team))
        wall = time.perf_counter() - started
        for agent in team:
            agent.writer.close()
        waits = sorted(second for agent in team for second in agent.seconds)
        return wall, max(agent.body_bytes for agent in team), waits[len(waits) * 99 // 100]

    parent.send(asyncio.run(play()))


@dataclass(frozen=True)
class Measured:
    """tokens: longest prompt. body_kb: longest request. cpu_ms: of the proxy's process, a call. wall_s: of all turns.
    p99_s: of a call."""

    tokens: int
    body_kb: float
    cpu_ms: float
    wall_s: float
    p99_s: float


async def measure(
    rollouts: int, tokens: int, turns: int, *, latency_s: float, profile: cProfile.Profile | None = None
) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        template = ChatTemplate.load(build_tokenizer(Path(folder)))
        sampler = FixedSampler([*template.encode(f"I look.\n{call_text('ls -la src')}"), template.turn_end_id])
        settings = ProxySettings(context_tokens=10**6, max_new_tokens=512, turn_log=Path(folder) / "turns")
        async with ChatProxy(template, HermesParser(), sampler, settings) as proxy:
            port = int(proxy.base_url.rsplit(":", 1)[1].split("/")[0])
            sessions = [proxy.open_rollout(f"r{number}") for number in range(rollouts)]
            here, there = multiprocessing.get_context("spawn").Pipe()
            keys = [session.api_key for session in sessions]
            process = multiprocessing.get_context("spawn").Process(
                target=agents, args=(port, keys, tokens, turns, there), daemon=True
            )
            process.start()
            await asyncio.to_thread(here.recv)
            sampler.latency_s = latency_s
            if profile is not None:
                profile.enable()
            cpu = time.process_time()
            here.send("go")
            wall, body, p99 = await asyncio.to_thread(here.recv)
            cpu = time.process_time() - cpu
            if profile is not None:
                profile.disable()
            process.join()
            records = [await session.close() for session in sessions]
    if not all(audit(record).clean and not record.branch_reasons for record in records):
        raise SystemExit("the records do not audit clean")
    longest = records[-1].turns[-1].prompt_length
    return Measured(longest, body / 1e3, cpu / (rollouts * turns) * 1e3, wall, p99)


async def curve(options: argparse.Namespace) -> None:
    print(f"{'tokens':>8} {'body kB':>8} {'CPU ms a call':>14}")
    for tokens in options.tokens:
        profile = cProfile.Profile() if options.profile else None
        result = await measure(8, tokens, options.turns, latency_s=0.0, profile=profile)
        print(f"{result.tokens:8} {result.body_kb:8.0f} {result.cpu_ms:14.2f}", flush=True)
        if profile is not None:
            pstats.Stats(profile).sort_stats("tottime").print_stats(20)


async def directly(rollouts: int, turns: int, latency_s: float) -> float:
    """Wall time of as many callers of the sampler itself."""
    sampler = FixedSampler([1])
    sampler.latency_s = latency_s

    async def work() -> None:
        for _ in range(turns):
            await sampler.sample([1], SamplingParams(), routing_key="")

    started = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(rollouts)))
    return time.perf_counter() - started


async def wall(options: argparse.Namespace) -> None:
    alone = await directly(options.rollouts, options.turns, options.latency)
    result = await measure(options.rollouts, options.history, options.turns, latency_s=options.latency)
    more = (result.wall_s / alone - 1) * 100
    print(
        f"{options.rollouts} rollouts of {options.turns} turns at {options.latency:g} s, {result.tokens} tokens: "
        f"{result.wall_s:.2f} s against {alone:.2f} s, {more:+.1f} %; "
        f"p99 of a call {result.p99_s:.3f} s; {result.cpu_ms:.2f} ms CPU a call"
    )


PARTS = {"curve": curve, "wall": wall}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=PARTS, help="both, unless told")
    parser.add_argument("--tokens", type=int, nargs="+", default=[2_000, 10_000, 20_000, 50_000])
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--rollouts", type=int, default=64)
    parser.add_argument("--history", type=int, default=20_000)
    parser.add_argument("--latency", type=float, default=2.0)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    for part in options.parts or PARTS:
        asyncio.run(PARTS[part](options))


if __name__ == "__main__":
    main()
