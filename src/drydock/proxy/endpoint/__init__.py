"""Rollouts whose chat calls are passed on to an OpenAI-compatible endpoint of somebody else."""

from drydock.proxy.endpoint.client import EndpointAddress, EndpointClient
from drydock.proxy.endpoint.relay import EndpointRelay

__all__ = ["EndpointAddress", "EndpointClient", "EndpointRelay"]
