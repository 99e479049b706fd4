"""Tools that a user writes: a class, named as `module:Class` in the list of tools.

```python
class CountLinesArguments(BaseModel):
    path: str

class CountLines(CustomTool[CountLinesArguments]):
    name = "count_lines"
    description = "Count the lines of a file."
    arguments_type = CountLinesArguments

    async def run(self, arguments: CountLinesArguments) -> str:
        done = await self.sandbox.run(f"wc -l < {shlex.quote(arguments.path)}")
        if done.return_code != 0:
            raise ToolRefused(done.stdout)
        return done.stdout.strip()
```

One object is made for each rollout (and each step of a task in steps), so it may keep state. It runs in the driver and
reaches the sandbox through `self.sandbox` only. Nothing of the SDK is needed here: its types stay behind
`tools/custom.py`.
"""

import importlib
from abc import ABC, abstractmethod
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel

from drydock.errors import ConfigError

if TYPE_CHECKING:
    from drydock.harness.sandbox_access import SandboxAccess

TAKEN_BY_THE_SDK = ("security_risk", "summary")
"""Arguments that the SDK removes from a call before a tool sees it."""


class ToolRefused(Exception):
    """A call that cannot be carried out for a reason that is the model's; the message is shown to it."""


class CustomTool[ArgumentsT: BaseModel](ABC):
    """Base of the tools that users write.

    name, description: what the model sees. arguments_type: the parameters; the model's schema is made from it, and
    arguments that it refuses go back to the model. An exception other than ToolRefused ends the rollout as the
    harness's failure.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    arguments_type: ClassVar[type[BaseModel]]

    def __init__(self, sandbox: "SandboxAccess") -> None:
        self.sandbox = sandbox

    @abstractmethod
    async def run(self, arguments: ArgumentsT) -> str:
        """Carry out a call; what is returned is shown to the model."""


@lru_cache(maxsize=64)
def custom_tool_class(path: str) -> type[CustomTool[Any]]:
    """The class at `module:Class`; raises ConfigError when it cannot be imported or is no usable tool."""
    module_name, _, class_name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, ValueError) as error:
        raise ConfigError(f"the tool {path} cannot be imported: {error} (is its folder in PYTHONPATH?)") from error
    except AttributeError:
        raise ConfigError(f"the tool {path} cannot be imported: {module_name} has no {class_name!r}") from None
    if not (isinstance(found, type) and issubclass(found, CustomTool)):
        raise ConfigError(f"the tool {path} is no subclass of drydock.harness.custom_tool.CustomTool")
    for attribute, kind in (("name", str), ("description", str)):
        if not isinstance(getattr(found, attribute, None), kind):
            raise ConfigError(f"the tool {path} needs a class attribute {attribute!r}, a string")
    arguments = getattr(found, "arguments_type", None)
    if not (isinstance(arguments, type) and issubclass(arguments, BaseModel)):
        raise ConfigError(f"the tool {path} needs a class attribute 'arguments_type', a pydantic model")
    for taken in TAKEN_BY_THE_SDK:
        if taken in arguments.model_fields:
            raise ConfigError(f"the tool {path} has an argument {taken!r}, which the SDK keeps for itself; rename it")
    return found


@lru_cache(maxsize=64)
def custom_tool_schema(tool: type[CustomTool[Any]]) -> dict[str, Any]:
    """The tool's chat-completions schema."""
    parameters = without_titles(tool.arguments_type.model_json_schema())
    parameters.pop("description", None)
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def without_titles(node: Any) -> Any:
    """A JSON schema without the titles that pydantic makes from field names; a property called `title` stays, and so
    does what stands in a value."""
    if isinstance(node, list):
        return [without_titles(one) for one in node]
    if not isinstance(node, dict):
        return node
    return {
        key: value if key in ("const", "default", "enum", "examples") else without_titles(value)
        for key, value in node.items()
        if not (key == "title" and isinstance(value, str))
    }
