"""The one place from which Drydock imports the OpenHands SDK.

The SDK and litellm read their environment while they are imported: litellm would fetch a price list from the web, the
SDK would print a banner, take over the root logger and look for identity files, skills and model profiles of whoever
runs the driver. None of that may reach a prompt, so the settings are made here first and every other module of the
package imports the SDK's names from here.

`OH_PERSISTENCE_DIR` becomes an empty directory that is removed when the process ends; `HOME` is left alone.
"""

import logging
import os

from drydock.own_directory import own_directory

PERSISTENCE_DIR = own_directory("openhands")

os.environ["OH_PERSISTENCE_DIR"] = str(PERSISTENCE_DIR)
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
os.environ["OPENHANDS_SUPPRESS_BANNER"] = "1"
os.environ.setdefault("LOG_AUTO_CONFIG", "false")
os.environ.setdefault("ALLOW_SHORT_CONTEXT_WINDOWS", "true")

from litellm import exceptions  # noqa: E402
from litellm.types.utils import ModelResponse  # noqa: E402
from openhands.sdk import LLM, Agent  # noqa: E402
from openhands.sdk.agent.parallel_executor import ParallelToolExecutor  # noqa: E402
from openhands.sdk.agent.response_dispatch import LLMResponseType, classify_response  # noqa: E402
from openhands.sdk.context.condenser import LLMSummarizingCondenser  # noqa: E402
from openhands.sdk.conversation.exceptions import ConversationRunError  # noqa: E402
from openhands.sdk.conversation.impl.local_conversation import LocalConversation  # noqa: E402
from openhands.sdk.conversation.state import ConversationExecutionStatus, ConversationState  # noqa: E402
from openhands.sdk.event import (  # noqa: E402
    ActionEvent,
    AgentErrorEvent,
    Condensation,
    Event,
    LLMConvertibleEvent,
    MessageEvent,
    ObservationBaseEvent,
    ObservationEvent,
)
from openhands.sdk.io import FileStore  # noqa: E402
from openhands.sdk.llm import LLMResponse, Message  # noqa: E402
from openhands.sdk.llm.exceptions import (  # noqa: E402
    LLMContextWindowExceedError,
    LLMError,
    map_provider_exception,
)
from openhands.sdk.llm.utils.metrics import MetricsSnapshot  # noqa: E402
from openhands.sdk.llm.utils.telemetry import Telemetry  # noqa: E402
from openhands.sdk.observability import laminar  # noqa: E402
from openhands.sdk.tool import Action, Observation, ToolAnnotations, ToolDefinition, ToolExecutor  # noqa: E402

# The SDK asks on every step whether tracing is wanted and searches the disk for a `.env` file each time: slow, and a
# file that nobody thought of could start tracing. Only the environment counts.
laminar.get_env = os.getenv  # pyright: ignore[reportPrivateImportUsage]

# What the SDK reports at ERROR (an unknown tool, the turn limit, a full context) is the policy's everyday behaviour
# and ends up in the trajectory; printed, it would be a line per rollout.
logging.getLogger("openhands").setLevel(logging.CRITICAL)

__all__ = [
    "LLM",
    "PERSISTENCE_DIR",
    "Action",
    "ActionEvent",
    "Agent",
    "AgentErrorEvent",
    "Condensation",
    "ConversationExecutionStatus",
    "ConversationRunError",
    "ConversationState",
    "Event",
    "FileStore",
    "LLMContextWindowExceedError",
    "LLMConvertibleEvent",
    "LLMError",
    "LLMResponse",
    "LLMResponseType",
    "LLMSummarizingCondenser",
    "LocalConversation",
    "Message",
    "MessageEvent",
    "MetricsSnapshot",
    "ModelResponse",
    "Observation",
    "ObservationBaseEvent",
    "ObservationEvent",
    "ParallelToolExecutor",
    "Telemetry",
    "ToolAnnotations",
    "ToolDefinition",
    "ToolExecutor",
    "classify_response",
    "exceptions",
    "map_provider_exception",
]
