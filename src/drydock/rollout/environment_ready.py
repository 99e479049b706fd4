"""Whether an environment that is not Drydock's own can work here, asked of the environment itself before any rollout.

Harbor's environments check credentials, daemons and options in their `preflight`, and end the process where something
is missing; here that becomes an error that names the environment.
"""

import inspect

from harbor.environments.base import BaseEnvironment
from harbor.environments.factory import EnvironmentFactory
from harbor.models.environment_type import EnvironmentType

from drydock.errors import ConfigError, SandboxUnavailable
from drydock.rollout.settings import SANDBOXES


def check_environment(environment: str, kwargs: dict[str, object]) -> None:
    """Load the environment (a name of Harbor's or `module:Class`) and let it check itself.

    Raises ConfigError for an unknown name, a class that cannot be imported or `sandbox.kwargs` that it refuses, and
    SandboxUnavailable, with the remedy, when this machine lacks what it needs.
    """
    try:
        loaded = _environment_class(environment)
        if "kwargs" in inspect.signature(loaded.preflight).parameters:
            loaded.preflight(kwargs=kwargs)
        else:
            loaded.preflight()
    except ImportError as missing:
        raise SandboxUnavailable(f"the sandbox {environment} cannot be loaded: {missing}") from missing
    except SystemExit as missing:
        raise SandboxUnavailable(f"the sandbox {environment} cannot work on this machine: {missing.code}") from None
    except (ValueError, TypeError) as error:
        raise ConfigError(f"the sandbox {environment} cannot be used as it is configured: {error}") from error


def _environment_class(environment: str) -> type[BaseEnvironment]:
    try:
        if ":" in environment:
            return EnvironmentFactory.get_environment_class(import_path=environment)
        return EnvironmentFactory.get_environment_class(environment_type=EnvironmentType(environment))
    except (ValueError, TypeError) as error:
        if ":" in environment:
            raise ConfigError(f"the sandbox {environment} cannot be imported: {error}") from error
        raise unknown_environment(environment) from None


def unknown_environment(name: str) -> ConfigError:
    """The refusal of a name that neither Drydock nor Harbor knows."""
    known = ", ".join([*SANDBOXES, *(kind.value for kind in EnvironmentType)])
    return ConfigError(f"unknown sandbox {name!r}; give module:Class or one of: {known}")
