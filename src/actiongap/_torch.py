"""The array library of PyTorch's tensors, such that `torch.compile` makes one graph of whatever is written with it.

`array_api_compat.torch` makes PyTorch keep to the array standard, and what is not written here is as it is there. But it asks what type
comes of a tensor and a plain number, which breaks a compiled graph in two, and it takes indices of 64 bits alone.
"""

from __future__ import annotations

from typing import Any

import torch
from array_api_compat import torch as standard
from array_api_compat.torch import asarray, max, sum, where
from torch import exp, log, zeros_like

__all__ = ["asarray", "exp", "log", "max", "maximum", "minimum", "sum", "take_along_axis", "where", "zeros_like"]


def __getattr__(name: str) -> Any:
    # A compiler does not look here, so that what operators and targets are made of has been named above.
    return getattr(standard, name)


def maximum(x: Any, y: Any) -> torch.Tensor:
    """The larger of two, of which one may be a plain number.

    Examples
    --------
    >>> maximum(torch.asarray([1.0, 3.0]), 2.0)
    tensor([2., 3.])
    """
    if not (isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor)):
        return torch.clamp(x, min=y) if isinstance(x, torch.Tensor) else torch.clamp(y, min=x)
    return torch.maximum(x, y) if x.dtype == y.dtype else standard.maximum(x, y)


def minimum(x: Any, y: Any) -> torch.Tensor:
    """The smaller of two, of which one may be a plain number.

    Examples
    --------
    >>> minimum(torch.asarray([1.0, 3.0]), 2.0)
    tensor([1., 2.])
    """
    if not (isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor)):
        return torch.clamp(x, max=y) if isinstance(x, torch.Tensor) else torch.clamp(y, max=x)
    return torch.minimum(x, y) if x.dtype == y.dtype else standard.minimum(x, y)


def take_along_axis(x: torch.Tensor, indices: torch.Tensor, /, *, axis: int = -1) -> torch.Tensor:
    """Values by their indices along an axis, whatever integers these are and on whatever device.

    Examples
    --------
    >>> take_along_axis(torch.asarray([[1.0, 3.0]]), torch.asarray([[1]], dtype=torch.uint8))
    tensor([[3.]])
    """
    return torch.take_along_dim(x, indices.to(device=x.device, dtype=torch.int64), dim=axis)
