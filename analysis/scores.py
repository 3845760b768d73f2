"""Returns on scales that tasks share, so that they can be averaged.

- `normalised`: 0 for the random agent, 1 for the task's `high` (the table `tasks`); can be outside 0 to 1.
- `standardised`: the paper's figure; 0 and 1 are the lowest and the highest mean of the methods shown on a task.
- `relative`: for claims; 0 for the random agent and below, 1 for the best run of any agent in the figure. It replaces
  `standardised`, whose low end is the worst method shown: a fixed low end does not stretch a task on which all agents
  are alike to 0 and 1, and a best run that does not depend on which agent made it keeps permutation tests exact. If
  even the best run is hardly above random, `LEAST_BEST` takes its place; otherwise the noise of a task that nobody
  learns would outweigh all others.
- `collapsed`: 1 for a run whose `relative` score is below `COLLAPSED`, else 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

COLLAPSED = 0.4
LEAST_BEST = 0.1  # normalised
CLAIM_METRICS = ("normalised", "relative", "collapsed")


def with_normalised(runs: pd.DataFrame) -> pd.DataFrame:
    """`frames.scores` with the column `normalised`; NaN for a failed run and for a task without a scale."""
    random, high = runs["random_return"], runs["high"]
    return runs.assign(normalised=(runs["return"] - random) / (high - random))


def with_claim_metrics(runs: pd.DataFrame, agents: Sequence[str]) -> pd.DataFrame:
    """`frames.scores` with the columns of `CLAIM_METRICS`; the best run is the best among those of `agents`."""
    runs = with_normalised(runs)
    cell = ["task", "tier", "protocol"]
    best = runs["normalised"].where(runs["agent"].isin(agents)).groupby([runs[key] for key in cell]).transform("max")
    relative = runs["normalised"].clip(lower=0) / best.clip(lower=LEAST_BEST)
    return runs.assign(relative=relative, collapsed=(relative < COLLAPSED).astype(float).where(relative.notna()))


def standardised(means: pd.DataFrame) -> pd.DataFrame:
    """The paper's rule for a frame of tasks x methods; NaN for a method that a task lacks.

    A task with only one method, or with all methods equal, is NaN throughout.
    """
    low, high = means.min(axis=1), means.max(axis=1)
    return means.sub(low, axis=0).div((high - low).replace(0, np.nan), axis=0)
