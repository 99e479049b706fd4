"""What can be found wrong with a run before anything is created. The checks of a run are in `run_checks`."""

from drydock.training.preflight.check import Check, Found, find_all, in_thread
from drydock.training.preflight.refusal import PreflightFailed, refuse_failures

__all__ = ["Check", "Found", "PreflightFailed", "find_all", "in_thread", "refuse_failures"]
