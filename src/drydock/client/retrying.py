"""Which failed attempts are worth another one, and when.

A refusal that cannot heal fails at once: an unknown job (404), another user's (403), one that is over (410), a wrong
body (400, 422), an unserved part of the API (501), and a 500 whose body names the error, which the same call would
meet again. Repeated are lost connections, 408, 429, 502, 503, 504, a nameless 500, and 409 while the job is starting.

How long depends on what the failure says. A server that turns calls away for now (429, a starting job) is asked until
the call's deadline. One that cannot be connected to is given up after `unreachable_s` if it never answered (a wrong
address) and after `outage_s` if it did (it is probably being restarted). Everything else has `attempts`.
"""

import json
import random
from dataclasses import dataclass
from typing import Final

import httpx

_ALWAYS_PASSING: Final = frozenset({408, 429, 502, 503, 504})
_STARTING_SIGN: Final = "not running yet"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Backoff between attempts: `first_s` doubled each time up to `cap_s`, times a random factor in [0.5, 1].

    attempts: of calls that reach the server. unreachable_s: for how long a server that never answered is tried.
    outage_s: for how long one that did answer is waited for when it can no longer be connected to.
    """

    attempts: int = 10
    first_s: float = 0.25
    cap_s: float = 10.0
    unreachable_s: float = 3.0
    outage_s: float = 300.0
    outage_cap_s: float = 1.0

    def delay_s(self, attempt: int, response: httpx.Response | None) -> float:
        """Seconds to wait after failed attempt number `attempt` (from 0); a server's Retry-After is a lower bound."""
        cap_s = self.outage_cap_s if response is None else self.cap_s
        delay = min(cap_s, self.first_s * 2 ** min(attempt, 30)) * random.uniform(0.5, 1.0)
        announced = response.headers.get("retry-after", "") if response is not None else ""
        return max(delay, min(float(announced), 60.0)) if announced.isdigit() else delay


def passing(response: httpx.Response) -> bool:
    """Whether the same call may succeed later although it was answered like this."""
    if response.status_code in _ALWAYS_PASSING:
        return True
    if response.status_code == 409:
        return _STARTING_SIGN in response.text
    return response.status_code == 500 and not _names_error(response.text)


def turned_away(response: httpx.Response) -> bool:
    """Whether the server certainly did nothing: it was too busy, or the job is still starting."""
    return response.status_code in (409, 429, 503)


def patient(response: httpx.Response) -> bool:
    """Whether to ask until the deadline, since the server says that its "no" is for now only."""
    return response.status_code in (409, 429)


def _names_error(body: str) -> bool:
    try:
        answer = json.loads(body)
    except ValueError:
        return False
    return isinstance(answer, dict) and bool(answer.get("error_type"))
