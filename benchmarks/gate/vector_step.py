"""The input of whatever acts: an agent, an oracle, a scripted policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class VectorStep:
    """What an agent sees when it acts, for B slots.

    `first` marks slots that have just been reset: a new rollout starts there, and memory of the previous one must be
    cleared. `inner_reset` marks the first observation of a new inner episode in the same rollout: memory is kept.
    """

    observation: Any  # batched as the vector environment returns it
    reward: np.ndarray  # float32 [B], of the previous step; 0 where `first`
    first: np.ndarray  # bool [B]
    inner_reset: np.ndarray  # bool [B]
