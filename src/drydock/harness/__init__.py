"""The OpenHands agent as a driver-side Harbor agent.

The package itself imports nothing heavy: `connections`, `result` and `failures` are light, `openhands` and what it
uses load the SDK (seconds).
"""

from drydock.harness.connections import Connection, connection_for, offered
from drydock.harness.failures import AgentCrashed, PolicyCallFailed, SandboxCommandFailed
from drydock.harness.result import End, HarnessResult

__all__ = [
    "AgentCrashed",
    "Connection",
    "End",
    "HarnessResult",
    "PolicyCallFailed",
    "SandboxCommandFailed",
    "connection_for",
    "offered",
]
