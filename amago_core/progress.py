"""What a learner reports while it learns. Imports no torch: the harness reads it from agents of every kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Progress:
    """A report at a safe point. All counts are totals since the start of training; times in seconds."""

    updates: int = 0
    tokens: int = 0  # learned from
    collect_s: float = 0.0
    learn_s: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)  # mean losses and the like, since the last report
    checkpoint: bool = False  # the agent asks for one now; only for agents that can be resumed
    skipped: int = 0  # updates whose gradient was not finite; they changed no weights
