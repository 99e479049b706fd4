"""The headers of a task's MCP servers with the driver's variables filled in, which the run has allowed by name."""

from typing import TYPE_CHECKING

from harbor.utils.env import embedded_env_var_templates

if TYPE_CHECKING:
    from harbor.agents.base import BaseAgent


def headers_of(agent: "BaseAgent") -> tuple[dict[str, dict[str, str]], set[str]]:
    """An agent's headers by server and name, and what among them no text may hold: values of variables, credentials."""
    filled = agent.mcp_header_env
    headers = {
        server: {name: filled.env[variable] for name, variable in variables.items()}
        for server, variables in filled.refs.items()
    }
    secrets = set(filled.secrets)
    for server in agent.mcp_servers:
        for name, template in server.headers.items():
            variables = [variable for variable, _ in embedded_env_var_templates(template)]
            secrets.update(value for variable in variables if (value := agent._get_env(variable)))
            if variables:
                secrets.add(headers[server.name][name])
    return headers, secrets
