"""Whether a model that is no folder can be had: from this machine's hub cache, or from the hub, which is asked.

The hub is asked for the model's `config.json`, which every loading begins with, once and under a limit: the loaders
themselves try for half a minute before they say that a name was mistyped.
"""

import os
import queue
import threading
from pathlib import Path
from urllib.parse import quote

from drydock.errors import UserError
from drydock.service.model_facts import HUB_ID, hub_snapshot, is_offline, names_folder

HUB_DEADLINE_S = 10.0
"""How long the hub may take to say whether it has a model."""


def require_model(name: str, *, deadline_s: float = HUB_DEADLINE_S) -> None:
    """Raises UserError saying what `name` is not: neither a folder of this machine nor a model of the hub."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        return
    if names_folder(name) or not HUB_ID.fullmatch(name):
        raise UserError(f"there is no model folder {folder.absolute()}, and {name!r} cannot be a hub id (owner/name)")
    if hub_snapshot(name) is not None:
        return
    if why := "HF_HUB_OFFLINE is set" if is_offline() else _hub_refusal(name, deadline_s):
        raise UserError(
            f"{name!r} is neither a model folder ({folder.absolute()} does not exist) nor a hub model that can be had "
            f"(it is not in this machine's hub cache, and {why}); check the name"
        )


def _hub_refusal(name: str, deadline_s: float) -> str:
    """What is wrong with the hub's answer, empty when it has the model."""
    endpoint = (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
    answers: queue.SimpleQueue[str] = queue.SimpleQueue()
    # a thread, because looking up a host's name has no time limit; as a daemon it holds up nobody's end
    asking = threading.Thread(target=lambda: answers.put(_ask(endpoint, name, deadline_s)), daemon=True)
    asking.start()
    try:
        return answers.get(timeout=deadline_s)
    except queue.Empty:
        return _silent(endpoint, deadline_s)


def _silent(endpoint: str, deadline_s: float) -> str:
    return f"the hub at {endpoint} did not answer within {deadline_s:g} s"


def _ask(endpoint: str, name: str, deadline_s: float) -> str:
    import httpx
    from huggingface_hub import get_token

    token = get_token()
    try:
        answer = httpx.head(
            f"{endpoint}/{quote(name)}/resolve/main/config.json",
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=deadline_s,
        )
    except httpx.TimeoutException:
        return _silent(endpoint, deadline_s)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return f"the hub at {endpoint} cannot be reached: {error}"
    match answer.status_code:
        case 401 | 403:
            return (
                f"the hub at {endpoint} does not show it to {'this HF_TOKEN' if token else 'anybody without HF_TOKEN'}"
            )
        case 404:
            return f"the hub at {endpoint} has no such model with a config.json"
        case status if status >= 400:
            return f"the hub at {endpoint} answered HTTP {status}"
    return ""
