"""Async client of the training API: one object for our service and for the hosted one.

Our service is reached by base URL and token, the hosted one by host and programmatic access token (`from_pat`). The
same calls work on both: what only ours understands (held answers, idempotency keys, events, compact log-probs) is
either harmless elsewhere or left out. Nothing here needs torch. Each method has a deadline and names itself, the job
and the server's message in every error.

A lost answer and a resend may not step an optimizer twice. With our service an `Idempotency-Key`, the same over all
attempts, sees to that, also when the service was restarted in between; the hosted one ignores it, so there a step
whose answer was lost fails instead.
"""

from drydock.client.adapter_calls import AdapterCalls
from drydock.client.checkpoint_calls import CheckpointCalls
from drydock.client.job_calls import JobCalls
from drydock.client.log_calls import LogCalls
from drydock.client.training_calls import TrainingCalls


class TrainingClient(JobCalls, TrainingCalls, AdapterCalls, CheckpointCalls, LogCalls):
    """Calls of the training API; an async context manager. Settings are those of `Connection`."""
