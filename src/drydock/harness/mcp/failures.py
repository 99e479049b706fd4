"""What can go wrong with an MCP server, told apart by whether it can be asked again."""


class McpFailure(Exception):
    """A request failed; the message says why and can be shown to the model."""


class NoAnswer(McpFailure):
    """The server did not answer in time, or with something that is no answer. It may answer the next request."""


class ServerGone(McpFailure):
    """The server cannot be talked to any more."""


class RequestRefused(McpFailure):
    """The server answered with an error."""
