"""A verifier that often leaves no reward.

Where it never leaves one, the step has no graded rollout: it is tried again, and then the run stops with that cause.
"""

from collections import Counter
from collections.abc import Sequence

from drydock.errors import Blame
from drydock.rollout.outcome import Outcome
from drydock.training.diagnosis.base import Symptom, examples
from drydock.training.diagnosis.facts import StepFacts, StepSummary
from drydock.training.diagnosis_config import DiagnosisConfig

SHOWN_CHARS = 200


def verifier_failing(facts: StepFacts, steps: Sequence[StepSummary], limits: DiagnosisConfig) -> Symptom | None:
    """Compares the failed verifications with all of the step."""
    failed = [one for one in facts.trajectories if one.outcome is Outcome.VERIFIER_ERROR]
    verified = len(failed) + len(facts.graded)
    if not failed or len(failed) < limits.verifier_failing_share * verified:
        return None
    said = Counter(one.error or "no reason was given" for one in failed).most_common(1)[0][0]
    error = said.splitlines()[0][:SHOWN_CHARS]
    tasks = len({one.task for one in failed})
    return Symptom(
        f"the verifier gave no reward to {len(failed)} of {verified} rollouts, of {tasks} task(s); most often: {error}",
        Blame.TASK,
        "read `evidence.verifier_output` in the files named here, mend tests/test.sh and see `drydock tasks check`",
        rollouts=examples(failed),
        metrics=("outcome/verifier_error",),
    )
