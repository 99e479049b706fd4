"""Float32 copies of trained parameters that the model holds in a narrower type (mixed precision, arXiv 1710.03740).

The model computes with its own bfloat16 or float16 parameters. As soon as a backward pass has a gradient of one, it is
added to the float32 gradient of its master and freed, so that many micro-batches accumulate without rounding. The
optimizer sees masters only; after a step they are rounded into the model. Parameters that are float32 or wider already
are their own masters, and nothing is copied for them.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn


class MasterWeights:
    """The parameters of one model as its optimizer sees them."""

    def __init__(self, model: nn.Module) -> None:
        self.parameters: dict[str, nn.Parameter] = {}
        self._narrow: dict[str, nn.Parameter] = {}
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                continue
            if parameter.dtype in (torch.float32, torch.float64):
                self.parameters[name] = parameter
                continue
            master = nn.Parameter(parameter.detach().float())
            self.parameters[name] = master
            self._narrow[name] = parameter
            parameter.register_post_accumulate_grad_hook(_move_gradient_to(master))

    @torch.no_grad()
    def publish(self) -> None:
        """Round the masters into the model."""
        for name, parameter in self._narrow.items():
            parameter.copy_(self.parameters[name])

    @torch.no_grad()
    def restart(self) -> None:
        """Take the model's own values as masters."""
        for name, parameter in self._narrow.items():
            self.parameters[name].copy_(parameter)

    def copies(self) -> dict[str, Tensor]:
        """The masters that are not the model's own parameters, by name, detached."""
        return {name: self.parameters[name].detach() for name in self._narrow}

    @torch.no_grad()
    def assign(self, copies: Mapping[str, Tensor]) -> None:
        """Take over what `copies` gave; names are those of this model."""
        for name in self._narrow:
            self.parameters[name].copy_(copies[name])


def _move_gradient_to(master: nn.Parameter):
    def move(parameter: Tensor) -> None:
        gradient = parameter.grad
        if gradient is not None:
            if master.grad is None:
                master.grad = gradient.float()
            else:
                master.grad.add_(gradient)
            parameter.grad = None

    return move
