"""Import timm and torchvision beside a torch of another build."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

_KEPT = []  # operators exist as long as their library does


def torch_libraries() -> tuple[Any, Any]:
    """Return timm and torchvision; skip the tests where they are not installed.

    The wheel of torchvision comes with operators in C++, which load only beside the torch that it was built with.
    Beside another one, the import fails at the first function that is registered for such an operator. The networks
    need none of them, so the two that are missing are declared, without a body, before a second attempt.
    """
    try:
        import torchvision
    except ModuleNotFoundError as error:
        pytest.skip(f"{error}; `make test-torch` installs it", allow_module_level=True)
    except RuntimeError as error:
        if "torchvision::nms does not exist" not in str(error):
            raise
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")
        _KEPT.append(library)
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor boxes, Tensor scores, float threshold) -> Tensor")
        import torchvision
    return pytest.importorskip("timm"), torchvision
