"""The vote as layers of PyTorch: trained end to end with a network, then exported for ONNX Runtime.

Only this part of the package needs the extra ``torch``.
"""

from __future__ import annotations

from ..errors import PatchvoteError

try:
    import torch as _torch
except ImportError:
    raise PatchvoteError("patchvote.nn needs torch. Install it with: pip install 'patchvote[torch]'") from None

from .fine_tune import Tuned, TuningSettings, fine_tune
from .layers import ML3, SMM, ML3Conv2d, VoteHead
from .tune_or_keep import TuneOrKeep, tune_or_keep

__all__ = ["ML3", "SMM", "ML3Conv2d", "TuneOrKeep", "Tuned", "TuningSettings", "VoteHead", "fine_tune", "tune_or_keep"]

del _torch
