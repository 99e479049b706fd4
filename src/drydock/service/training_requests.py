"""The requests that change what the trainer holds: forward-backward and step.

Both are safe to run once only. They are written down before the trainer hears of them, under an operation id that it
never runs twice; after a restart of the service the same function waits for the operation instead of sending it.
"""

from drydock.service.live_job import LiveJob
from drydock.service.meters import Meter, Metered
from drydock.service.request_record import Outcome, RequestRecord
from drydock.wire.blob import Bytes


async def forward_backward(job: LiveJob, frame: Bytes, record: RequestRecord) -> Outcome:
    """Adds the gradients of the batch in `frame`. Raises TrainingRewound before anything else."""
    job.begin_training(record)
    worker = job.training()
    reply = await record.ask(worker, "forward-backward", frame)
    summary = reply.header["result"]
    job.last_loss = summary.get("avg_loss")
    metered = (Metered(Meter.TRAINED_TOKENS, reply.header["tokens"], worker.spec.sub_job_id),)
    if reply.payload:
        return Outcome(frame=reply.payload, metered=metered)
    return Outcome(summary, metered=metered)


async def step(job: LiveJob, learning_rate: float | None, record: RequestRecord) -> Outcome:
    """Takes one optimizer step. Raises TrainingRewound before anything else."""
    job.begin_training(record)
    reply = await record.ask(job.training(), "step", learning_rate=learning_rate)
    return Outcome(reply.header["result"])
