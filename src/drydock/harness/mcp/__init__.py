"""The agent's client of MCP servers, which run in the sandbox or beside it and never in the driver.

The client is Drydock's own and small: it asks and waits, so it needs no task in the background, and cancelling a
rollout cancels the command that it waits for. Everything it does is a command in the sandbox, so the driver opens no
connection that a task names, and what the sandbox may not reach, a server of its task may not either.

`program` keeps a program with pipes in the sandbox, `curl` writes HTTP requests for it; `stdio`, `streamable_http` and
`sse` are the transports; `session` is the protocol; `offered_tool` and `tool_result` are what the model sees; `hiding`
keeps secrets out of that; `servers` starts and closes what a task lists. Nothing here loads the OpenHands SDK.
"""
