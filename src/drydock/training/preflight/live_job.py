"""A job of its own on the run's service, from start to end in small: loaded, sampled, scored, stepped, synchronized.

What it finds shows nowhere else: a model that does not fit, a sampler that answers with nothing, a trainer that
computes other probabilities than the sampler. It costs a job's start, so it is not part of every run's start; the job
is cancelled when the check ends, however it ends.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from drydock.client import Generation, TrainingClient
from drydock.errors import DrydockError, ServiceError
from drydock.finding import Finding, Level
from drydock.training.batch import Row, policy_batch
from drydock.training.config import RunConfig
from drydock.training.named_apart import named_apart
from drydock.training.policy_job import PolicyJob, policy_job
from drydock.training.train_step import loss_config
from drydock.wire.rest import SamplingParams

SAMPLED_TOKENS = 16
WARN_ABOVE = 0.02
"""Mean absolute difference of log-probs, in nats a token, above which importance ratios are noisy."""

FAIL_ABOVE = 0.2
"""The same, above which the trainer trains another distribution than the one that was sampled."""

_LOG_REMEDY = "read the job's log (`drydock jobs logs ID`)"
_AGREE_REMEDY = "same model, precision and attention on both sides? see docs/service.md and the job's configuration"


async def check_live_job(client: TrainingClient, config: RunConfig, prompt: Sequence[int]) -> list[Finding]:
    """job, sampler, log-probs and step, as far as it gets. `prompt`: token ids to sample from."""
    own = named_apart(config, "doctor")
    found: list[Finding] = []
    try:
        with tempfile.TemporaryDirectory(prefix="drydock-doctor-") as folder:
            async with policy_job(client, own, Path(folder) / "job_id", lambda _: None) as job:
                found.append(Finding("job", Level.PASS, f"job {job.job_id} loaded its models"))
                turn = await sample(job, prompt)
                found.append(Finding("sampler", Level.PASS, f"{len(turn.token_ids)} tokens sampled"))
                found += await check_agreement(job, prompt, turn)
                found.append(await _step(job, prompt))
    except DrydockError as error:
        names = ("job", "sampler", "log-probs", "step")
        found.append(Finding(names[min(len(found), len(names) - 1)], Level.FAIL, str(error), _LOG_REMEDY))
    return found


async def sample(job: PolicyJob, prompt: Sequence[int]) -> Generation:
    """One short turn after `prompt`, with log-probs. Raises ServiceError when it has no token."""
    params = SamplingParams(max_tokens=SAMPLED_TOKENS, logprobs=0, compact_logprobs=True, ignore_eos=True)
    limit_s = job.config.deadlines.sampling_call_s
    (turn,) = await job.client.generate(job.job_id, [list(prompt)], params, deadline_s=limit_s)
    if not turn.token_ids:
        raise ServiceError(f"the sampler of job {job.job_id} ended a turn without a token ({turn.finish_reason})")
    return turn


async def check_agreement(job: PolicyJob, prompt: Sequence[int], turn: Generation) -> list[Finding]:
    """Score the turn with the trainer, as a step would, and compare with what the sampler said of its tokens.

    The trainer keeps the gradients of this call until the next step.
    """
    ids = [*prompt, *turn.token_ids]
    mask = [0] * len(prompt) + [1] * len(turn.token_ids)
    row = Row(ids, mask, [0.0] * len(prompt) + turn.logprobs, advantage=1.0, weight=1.0)
    batch = policy_batch([row], loss_fn="grpo", loss_config=loss_config(job.config, 1, len(turn.token_ids)))
    batch["processing"]["post"] = ["compute_logprobs"]
    limit_s = job.config.deadlines.forward_backward_s
    result = await job.client.forward_backward(job.job_id, batch, deadline_s=limit_s)
    scores = result.post_process_outputs.get("logprobs")
    if scores is None:
        detail = "the service does not say the trainer's log-probs, so they cannot be compared"
        return [Finding("log-probs", Level.WARN, detail, "watch mismatch/logprob_diff_max in the run's metrics")]
    trained = np.asarray(scores, np.float64)[0, len(prompt) - 1 : len(ids) - 1]
    return [agreement_finding(np.abs(trained - np.asarray(turn.logprobs)))]


def agreement_finding(differences: np.ndarray) -> Finding:
    """differences: absolute, in nats, one a sampled token."""
    mean, most = float(differences.mean()), float(differences.max())
    detail = f"trainer and sampler differ by {mean:.1e} nats a token in the mean, {most:.1e} at most"
    agrees = mean <= WARN_ABOVE
    level = Level.PASS if agrees else Level.WARN if mean <= FAIL_ABOVE else Level.FAIL
    return Finding("log-probs", level, detail, _AGREE_REMEDY)


async def _step(job: PolicyJob, prompt: Sequence[int]) -> Finding:
    """One optimizer step, a weight sync, and a turn of the new weights. Raises ServiceError."""
    metrics = await job.step(job.config.trainer.policy.optimizer_config.lr)
    await job.sync()
    turn = await sample(job, prompt)
    norm = metrics.get("grad_norm")
    shown = f", gradient norm {norm:.2g}" if isinstance(norm, float) else ""
    version = "unknown" if turn.policy_version is None else turn.policy_version
    detail = f"one step taken{shown}; the sampler then samples with policy version {version}"
    if turn.policy_version not in (job.version, None):
        said = f"{detail}, expected {job.version}"
        return Finding("step", Level.FAIL, said, "the weight sync has no effect: read the job's log")
    return Finding("step", Level.PASS, detail)
