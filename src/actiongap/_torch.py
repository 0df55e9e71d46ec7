"""An array API namespace for PyTorch that `torch.compile` traces into one graph.

It is `array_api_compat.torch` with a few functions replaced. The originals compute the result type of a tensor and a plain number, which
breaks a compiled graph in two, and accept only 64-bit indices.
"""

from __future__ import annotations

from typing import Any

import torch
from array_api_compat import torch as standard
from array_api_compat.torch import asarray, max, sum, where
from torch import exp, log, zeros_like

__all__ = ["asarray", "exp", "log", "max", "maximum", "minimum", "sum", "take_along_axis", "where", "zeros_like"]


def __getattr__(name: str) -> Any:
    # torch.compile does not call this, so the functions that operators and targets use are imported above.
    return getattr(standard, name)


def maximum(x: Any, y: Any) -> torch.Tensor:
    """Elementwise maximum; one argument may be a plain number.

    Examples
    --------
    >>> maximum(torch.asarray([1.0, 3.0]), 2.0)
    tensor([2., 3.])
    """
    if not (isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor)):
        return torch.clamp(x, min=y) if isinstance(x, torch.Tensor) else torch.clamp(y, min=x)
    return torch.maximum(x, y) if x.dtype == y.dtype else standard.maximum(x, y)


def minimum(x: Any, y: Any) -> torch.Tensor:
    """Elementwise minimum; one argument may be a plain number.

    Examples
    --------
    >>> minimum(torch.asarray([1.0, 3.0]), 2.0)
    tensor([1., 2.])
    """
    if not (isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor)):
        return torch.clamp(x, max=y) if isinstance(x, torch.Tensor) else torch.clamp(y, max=x)
    return torch.minimum(x, y) if x.dtype == y.dtype else standard.minimum(x, y)


def take_along_axis(x: torch.Tensor, indices: torch.Tensor, /, *, axis: int = -1) -> torch.Tensor:
    """Take values along an axis; the indices may have any integer type and be on any device.

    Examples
    --------
    >>> take_along_axis(torch.asarray([[1.0, 3.0]]), torch.asarray([[1]], dtype=torch.uint8))
    tensor([[3.]])
    """
    return torch.take_along_dim(x, indices.to(device=x.device, dtype=torch.int64), dim=axis)
