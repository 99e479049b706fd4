"""Which agents a run can have: those that run in the driver and ask Drydock for their model endpoint.

An agent that Harbor installs inside the sandbox is refused: the endpoint and its key would have to be in there, where
the task's code and the policy's commands could use them, and the sandbox has no network to reach or install anything.
"""

import inspect

from harbor.agents.base import BaseAgent
from harbor.agents.factory import AgentFactory
from harbor.agents.installed.base import BaseInstalledAgent
from harbor.models.agent.name import AgentName
from harbor.utils.import_path import import_class

from drydock.errors import ConfigError

WITHOUT_MODEL = (AgentName.NOP, AgentName.ORACLE)
"""Harbor's agents that call no model."""

REMEDY = (
    "give module:Class of a driver-side agent (docs/agent.md), or run it outside and point it at the chat proxy "
    "(docs/agents.md)"
)


def driver_side_agent(agent: str) -> type[BaseAgent]:
    """The class of `module:Class`, or of one of Harbor's agents by name.

    Raises ConfigError when there is none, when it would be installed inside the sandbox, or when it has no way to
    learn of the rollout's endpoint.
    """
    found = _class_of(agent)
    if issubclass(found, BaseInstalledAgent):
        raise ConfigError(
            f"the agent {agent} is installed inside the sandbox by Harbor: the model's endpoint and key would have to "
            f"be in there too, within reach of the task's code; {REMEDY}"
        )
    if ":" not in agent and agent not in [name.value for name in WITHOUT_MODEL]:
        raise ConfigError(
            f"the agent {agent} finds its model by its own settings, not the one that is trained; {REMEDY}: a subclass "
            "can take `rollout_id` and ask drydock.harness.connection_for"
        )
    if ":" in agent and not _takes_rollout_id(found):
        raise ConfigError(
            f"the agent {agent} takes no keyword argument `rollout_id`, with which it would ask "
            "drydock.harness.connection_for for its model endpoint"
        )
    return found


def _class_of(agent: str) -> type[BaseAgent]:
    if ":" not in agent:
        try:
            return AgentFactory.get_agent_class(AgentName(agent))
        except ValueError:
            raise ConfigError(f"unknown agent {agent!r}; give module:Class, nop or oracle") from None
    try:
        found = import_class(agent, label="agent")
    except (ValueError, TypeError) as error:
        raise ConfigError(f"the agent {agent} cannot be imported: {error}") from error
    if not (isinstance(found, type) and issubclass(found, BaseAgent)):
        raise ConfigError(f"the agent {agent} is no subclass of harbor.agents.base.BaseAgent")
    return found


def _takes_rollout_id(found: type[BaseAgent]) -> bool:
    parameters = inspect.signature(found.__init__).parameters
    return "rollout_id" in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values())
