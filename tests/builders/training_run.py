"""A driver's loop over our client that goes on whatever dies, and knows what it was told about lost work.

Its data depend on the step's number only, so that a run that was put back to a checkpoint and went on from there ends
with the weights, bit for bit, of a run that nobody disturbed.
"""

import asyncio
import re
import uuid
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
from builders.service_api import HELD, Api, sampling_config, sft_batch, training_config

from drydock.client import TrainingClient
from drydock.errors import RequestFailed
from drydock.wire.rest import JobCreate, SamplingParams

REWOUND = re.compile(r"restarted from .* at step (\d+);")
RATE = 0.01


@dataclass
class RunReport:
    """What the loop saw. steps: results of step calls, in order. rewinds: texts that named lost work.

    answers: results of raw generate calls that were answered as completed, by request id.
    """

    fingerprint: str = ""
    steps: list[int] = field(default_factory=list)
    rewinds: list[str] = field(default_factory=list)
    sent_again: int = 0
    answers: dict[str, Any] = field(default_factory=dict)


@dataclass
class TrainingRun:
    """Trains `steps` steps of `calls` forward-backward calls, saving every `save_every` and sampling after each.

    With `api` it also keeps the results of some raw calls, for `check_answers`.
    """

    client: TrainingClient
    job_id: str
    steps: int = 5
    calls: int = 2
    save_every: int = 2
    api: Api | None = None
    report: RunReport = field(default_factory=RunReport)
    done: int = 0

    async def run(self) -> RunReport:
        """The whole loop; the report's fingerprint is that of the last weights."""
        while self.done < self.steps:
            await self._try(self._one_step)
        sync = None
        while sync is None:
            sync = await self._try(self._sync)
            if self.done < self.steps:
                return await self.run()
        self.report.fingerprint = sync.fingerprint or ""
        return self.report

    async def _one_step(self) -> None:
        number = self.done
        for call in range(self.calls):
            await self._again(lambda call=call: self.client.forward_backward(self.job_id, batch_of(number, call), 60))
        step = await self._again(lambda: self.client.step(self.job_id, RATE, 60))
        assert step.global_steps == number + 1, f"step {number + 1} came out as {step.global_steps}"
        self.report.steps.append(step.global_steps)
        self.done = step.global_steps
        if self.done % self.save_every == 0:
            await self._again(lambda: self.client.save(self.job_id, deadline_s=60))
        await self._sync()
        await self._sample()

    async def _sync(self) -> Any:
        job = self.job_id
        return await self._again(lambda: self.client.weight_sync(job, f"{job}:training:0", [f"{job}:sampling:0"], 60))

    async def _sample(self) -> None:
        params = SamplingParams(max_tokens=40, ignore_eos=True, temperature=0.0)
        found = await self._again(lambda: self.client.generate(self.job_id, [[5, 6, 7], [8, 9]], params, deadline_s=60))
        assert [len(item.token_ids) for item in found] == [40, 40]
        if self.api is not None:
            await self._raw_sample(self.api)

    async def _raw_sample(self, api: Api) -> None:
        body = {"prompts": [[5, 6, 7]], "sampling_params": {"max_tokens": 5, "ignore_eos": True, "temperature": 0.0}}
        headers = {**HELD, "Idempotency-Key": uuid.uuid4().hex}
        for _ in range(200):
            try:
                answer = await api.call("POST", f"/{self.job_id}/generate", json=body, headers=headers)
            except httpx.TransportError:
                await asyncio.sleep(0.1)
                continue
            state = answer.json()
            if state.get("status") == "completed":
                self.report.answers[state["request_id"]] = state["result"]
                return
            if state.get("status") in ("failed", "cancelled"):
                return
            await asyncio.sleep(0.1)
        raise AssertionError("a raw generate never ended")

    async def check_answers(self, api: Api) -> int:
        """Every result that was given as finished is still there; how many."""
        for request_id, result in self.report.answers.items():
            state = await api.poll(self.job_id, request_id)
            assert (state["status"], state.get("result")) == ("completed", result), state
        return len(self.report.answers)

    async def _again(self, call: Any) -> Any:
        """Repeats what was certainly not begun, or lost a sampler."""
        while True:
            try:
                return await call()
            except RequestFailed as failure:
                sampler = failure.error_type == "WorkerLost" and ":sampling:" in str(failure)
                if failure.error_type != "ServiceRestarted" and not sampler:
                    raise
                self.report.sent_again += 1

    async def _try(self, work: Any) -> Any:
        """Goes back to the step that the service says it went back to."""
        try:
            return await work()
        except RequestFailed as failure:
            named = REWOUND.search(str(failure))
            if failure.error_type not in ("TrainingRewound", "WorkerLost") or named is None:
                raise
            self.report.rewinds.append(str(failure))
            self.done = int(named[1])
            return None


def batch_of(step: int, call: int) -> dict[str, Any]:
    """Rows of this step and call, always the same."""
    return sft_batch(np.random.default_rng(1000 * step + call).integers(5, 200, (2, 16)))


def job_of(model: str, job_id: str, on_worker_loss: str = "fail") -> JobCreate:
    """A job of one trainer and one sampler."""
    configs = [
        training_config(model, on_worker_loss=on_worker_loss),
        sampling_config(model, on_worker_loss=on_worker_loss),
    ]
    return JobCreate.model_validate({"job_id": job_id, "sub_job_configs": configs})
