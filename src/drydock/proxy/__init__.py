"""The chat proxy that agents talk to, and the token ledger behind it."""

from drydock.chat.parsers.base import ParsedReply, ToolCallParser
from drydock.chat.parsers.hermes import HermesParser
from drydock.chat.template import ChatTemplate
from drydock.proxy.audit import TokenAudit, audit
from drydock.proxy.branching import BranchReason
from drydock.proxy.ledger import Ledger, Prompt
from drydock.proxy.record import LedgerSample, LoggedTurn, RolloutRecord, TurnRecord
from drydock.proxy.sampler import SampledTurn, Sampler
from drydock.proxy.server import ChatProxy
from drydock.proxy.service_sampler import ServiceSampler
from drydock.proxy.session import RolloutSession
from drydock.proxy.settings import ProxySettings

__all__ = [
    "BranchReason",
    "ChatProxy",
    "ChatTemplate",
    "HermesParser",
    "Ledger",
    "LedgerSample",
    "LoggedTurn",
    "ParsedReply",
    "Prompt",
    "ProxySettings",
    "RolloutRecord",
    "RolloutSession",
    "SampledTurn",
    "Sampler",
    "ServiceSampler",
    "TokenAudit",
    "ToolCallParser",
    "TurnRecord",
    "audit",
]
