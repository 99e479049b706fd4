"""An SDK telemetry that measures nothing.

The SDK keeps growing lists of latencies, looks up a price for each reply (and warns that an unknown model has none)
and copies all of it on every call. The chat proxy already records tokens and times of every turn.
"""

from typing import Any

from drydock.harness.sdk import Telemetry


class SilentTelemetry(Telemetry):
    def on_request(self, telemetry_ctx: dict[str, Any] | None) -> None:
        pass

    def on_response(self, resp: Any, raw_resp: Any = None, provider_info: Any = None) -> Any:
        return self.metrics

    def on_error(self, _err: BaseException) -> None:
        pass
