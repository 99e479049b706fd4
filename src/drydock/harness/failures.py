"""What can end the agent besides the agent itself, as exceptions that Harbor records by class name.

Harbor 0.26 treats a failure whose class it does not know as "retry, grade, reward valid": a broken endpoint would
become a rollout with reward 0. Drydock therefore never lets the SDK's own `ConversationRunError` escape, and outcomes
are decided by `drydock.rollout.outcome` from the names below, not by Harbor's table.
"""

from drydock.errors import HarnessError, ProxyError, SandboxError


class PolicyCallFailed(ProxyError):
    """A chat call of the agent failed at the endpoint (refused, timed out, unreachable, or the sampler broke)."""


class SandboxCommandFailed(SandboxError):
    """A command could not be run in the sandbox at all; a command that merely failed is an observation instead."""


class AgentCrashed(HarnessError):
    """The agent's own code raised."""
