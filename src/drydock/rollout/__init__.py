"""Rollouts: one attempt of the agent at one task, its outcome and its trajectory."""

from drydock.rollout.outcome import Outcome, Verdict, classify
from drydock.rollout.pool import RolloutPool, size_default_executor
from drydock.rollout.preflight import PreflightReport, preflight_task
from drydock.rollout.replacement import Replacements
from drydock.rollout.reward import RewardRule
from drydock.rollout.run import run_rollout
from drydock.rollout.runner import RolloutRunner
from drydock.rollout.settings import RolloutDeadlines, RolloutSettings
from drydock.rollout.spec import RolloutSpec
from drydock.rollout.trajectory import Trajectory, path_for
from drydock.rollout.trial_config import load_classes

__all__ = [
    "Outcome",
    "PreflightReport",
    "Replacements",
    "RewardRule",
    "RolloutDeadlines",
    "RolloutPool",
    "RolloutRunner",
    "RolloutSettings",
    "RolloutSpec",
    "Trajectory",
    "Verdict",
    "classify",
    "load_classes",
    "path_for",
    "preflight_task",
    "run_rollout",
    "size_default_executor",
]
