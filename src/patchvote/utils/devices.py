"""Move arrays to a device, such as a graphics card, and back.

The core computes with numpy. On a device, arrays are tensors of torch, used through the array API standard, in which
the mathematics is written. torch is imported only when a device is requested.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import is_numpy_array, to_device

from ..errors import PatchvoteError, first_line


def on_device(array: Any, device: str) -> Any:
    """Return an array as a tensor of torch on a device.

    Parameters
    ----------
    array : array
        Array of numpy, or tensor. On the CPU, the result shares its memory where possible.
    device : str
        Name of the device in torch, such as "cuda", "mps" or "cpu".

    Raises
    ------
    PatchvoteError
        torch is not installed, or cannot use the device here.
    """
    try:
        from array_api_compat import torch
    except ImportError:
        raise PatchvoteError(
            f"the device {device!r} needs torch. Install it with: pip install 'patchvote[torch]'"
        ) from None
    namespace: Any = torch
    try:
        return namespace.asarray(array, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise PatchvoteError(f"torch cannot use the device {device!r} here: {first_line(error)}") from None


def on_host(array: Any) -> npt.NDArray[Any]:
    """Return an array of any library as an array of numpy; arrays of numpy are returned unchanged.

    Examples
    --------
    >>> values = np.ones(3)
    >>> on_host(values) is values
    True
    """
    return array if is_numpy_array(array) else np.asarray(to_device(array, "cpu"))
