"""Processes killed with SIGKILL at random points of a running loop.

`python benchmarks/service_kills.py [api|training|sampling ...] [--seed 0] [--pause 1.5]`

For each of the API process, the trainer and the sampler, POINTS kills at seeded random moments (at most `--pause`
seconds after everything ran again; a short pause leaves no time to make a process ready for the next death) while a
driver trains, saves, syncs and samples over our client. Held at every point: the job is running again with all its
sub-jobs, nothing is left over. Held at the end: the weights are, bit for bit, those of a run of as many steps that
nobody disturbed; steps that were lost with a trainer were named to the driver; every result that was given is still
there.
Printed: how long it took from the kill until everything ran again.
"""

import argparse
import asyncio
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from builders.restartable_service import RestartableService
from builders.service_api import Api
from builders.tiny_model import build_tiny_model
from builders.training_run import TrainingRun, job_of

from drydock.client import TrainingClient

POINTS = 12
TARGET_S = 10.0


async def disturbed(
    service: RestartableService, client: TrainingClient, api: Api, model: str, kind: str, given: argparse.Namespace
):
    """Kills one kind of process POINTS times under a running loop; the run and the recovery times."""
    job_id = f"kill-{kind}"
    await client.create_job(job_of(model, job_id, "fail" if kind == "api" else "restart"))
    await client.wait_for_job(job_id, 120)
    run = TrainingRun(client, job_id, steps=1_000_000, save_every=3, api=api)
    running = asyncio.create_task(run.run())
    rng = random.Random(f"{given.seed}/{kind}")
    times: list[float] = []
    for _ in range(POINTS):
        await asyncio.sleep(rng.uniform(0.05, given.pause))
        if running.done():
            break
        started = time.monotonic()
        if kind == "api":
            await service.restart()
        else:
            os.kill(service.worker_of(job_id, kind), signal.SIGKILL)
        await until_all_run(service, client, job_id)
        times.append(time.monotonic() - started)
    run.steps = run.done + 3
    report = await asyncio.wait_for(running, 180)
    answers = await run.check_answers(api)
    await client.cancel_job(job_id)
    assert not service.processes(), "workers left over"
    verdict = "within" if max(times) < TARGET_S else "OVER"
    print(
        f"{kind:9} {len(times)} kills, {run.steps} steps, {answers} results checked, "
        f"{len(report.rewinds)} rewinds named, {report.sent_again} calls sent again; "
        f"recovery median {statistics.median(times):.2f} s, longest {max(times):.2f} s ({verdict} {TARGET_S:g} s)",
        flush=True,
    )
    return run.steps, report.fingerprint


async def until_all_run(service: RestartableService, client: TrainingClient, job_id: str) -> None:
    """Waits for two sub-jobs that run in two processes."""
    ends = time.monotonic() + 60
    while True:
        job = await client.get_job(job_id)
        assert job.status == "running", job
        if all(sub.status == "running" for sub in job.sub_jobs) and len(service.workers()) == 2:
            return
        assert time.monotonic() < ends, (job, service.workers())
        await asyncio.sleep(0.02)


async def undisturbed(client: TrainingClient, model: str, job_id: str, steps: int) -> str:
    await client.create_job(job_of(model, job_id))
    await client.wait_for_job(job_id, 120)
    report = await TrainingRun(client, job_id, steps=steps, save_every=3).run()
    await client.cancel_job(job_id)
    return report.fingerprint


async def main(given: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = str(build_tiny_model(Path(folder) / "model"))
        async with (
            RestartableService(Path(folder) / "state") as service,
            service.client() as client,
            Api(service.base_url, service.token) as api,
        ):
            for kind in given.kinds or ("api", "training", "sampling"):
                steps, fingerprint = await disturbed(service, client, api, model, kind, given)
                expected = await undisturbed(client, model, f"calm-{kind}", steps)
                assert fingerprint == expected, f"{kind}: the weights differ from an undisturbed run's"
                print(f"{kind:9} weights equal those of an undisturbed run of {steps} steps", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pause", type=float, default=1.5)
    asyncio.run(main(parser.parse_args()))
