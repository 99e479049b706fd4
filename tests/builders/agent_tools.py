"""Tools as a user writes them."""

import shlex
from typing import Literal

from pydantic import BaseModel, Field

from drydock.harness.custom_tool import CustomTool, ToolRefused


class CountArguments(BaseModel):
    """Not for the model."""

    path: str
    what: Literal["lines", "bytes"] = Field(default="lines", description="what to count")


class CountTool(CustomTool[CountArguments]):
    name = "count"
    description = "Count the lines or bytes of a file."
    arguments_type = CountArguments

    calls = 0

    async def run(self, arguments: CountArguments) -> str:
        self.calls += 1
        done = await self.sandbox.run(f"wc -{arguments.what[0].replace('b', 'c')} < {shlex.quote(arguments.path)}")
        if done.return_code != 0:
            raise ToolRefused(f"{arguments.path} cannot be read")
        return f"{done.stdout.strip()} {arguments.what} (call {self.calls})"


class NoArguments(BaseModel):
    pass


class BrokenTool(CustomTool[NoArguments]):
    name = "broken"
    description = "Raises."
    arguments_type = NoArguments

    async def run(self, arguments: NoArguments) -> str:
        raise KeyError("a fault of the tool")


class SummaryArguments(BaseModel):
    summary: str


class SummaryTool(BrokenTool):
    arguments_type = SummaryArguments


class FinishTwin(BrokenTool):
    name = "finish"


class NamelessTool(CustomTool[NoArguments]):
    pass
