"""Arrays on a device of their own, such as a graphics card, and back.

The core computes with numpy. Where a device is asked for, arrays become tensors of torch through the array API
standard, in which the mathematics is written anyway; torch is imported then, and not before.
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
        Of numpy, or a tensor. On the CPU, its memory is shared where possible.
    device : str
        "cuda", "mps", "cpu", or as torch names it.

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
    """Return an array of any library as one of numpy; one of numpy itself as it is.

    Examples
    --------
    >>> values = np.ones(3)
    >>> on_host(values) is values
    True
    """
    return array if is_numpy_array(array) else np.asarray(to_device(array, "cpu"))
