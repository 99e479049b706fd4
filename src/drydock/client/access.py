"""What an equal client in another process has to know."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ServiceAccess:
    """Where a service is and what lets a client in; `Connection.access` gives it, `TrainingClient.of` takes it.

    token: not in `repr`, and in the JSON that pydantic makes of it: that goes over a pipe, never into a file or log.
    database, schema, endpoint: names in the API's path. hosted: the service is not ours.
    """

    base_url: str
    token: str | None = field(repr=False)
    database: str
    schema: str
    endpoint: str
    hosted: bool
