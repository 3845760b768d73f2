"""The tables as pandas frames, and the one frame that all analysis starts from: the scores of runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fnmatch import fnmatchcase
from hashlib import sha256
from operator import attrgetter
from pathlib import Path

import pandas as pd

from results import schema, store
from results.errors import UserError

FIRST_TUNING_SEED = 1000  # from here on seeds were used to choose hyper-parameters, so they are never results
METRICS = ("return", "success")
TASK = ["task", "tier", "protocol"]
FACTS = ["random_return", "high", "solved_at", "stop_return"]
DECIDES = ("budget", "hyperparameters", "settings")  # the parts of a configuration that make a different agent


def load(table: str, root: Path | None = None, tier: str | None = None) -> pd.DataFrame:
    """A table of `results` with its columns in order, empty if nothing has run. `published` ignores `tier`."""
    columns = schema.columns(table)
    rows = map(attrgetter(*columns), store.load(table, root=root, tier=tier))
    return pd.DataFrame(list(rows), columns=columns)


def headline(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of `curves` or `episodes` that count: of the split `test` where a task has one, else of `same`."""
    return rows[rows["split"].isin(schema.HEADLINE_SPLITS)]


def scores(
    root: Path | None = None,
    tier: str | None = None,
    task: str = "*",
    agents: Sequence[str] | None = None,
    tuning: bool = False,
    runs: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """One row per run, in the order task, agent, seed. `task` and `agents` are shell patterns.

    `runs` is the table of that name, if it has been loaded already: reading thousands of run folders takes a second.

    `return` and `success` are the means of the final evaluation's rollouts in the headline split, `best_return` and
    `best_success` the largest means during training; all are NaN for a run that did not finish, and success is NaN if
    the task defines none. `state` is `finished`, `failed` (also: finished without a final evaluation) or `unfinished`
    (running or interrupted, so not yet a result). `config` is a digest of the run's budget, hyper-parameters and
    settings: rows that differ in it belong to different agents, whatever the name. Tuning seeds are left out, or
    with `tuning` all others, and so are the repeats of an agent that learns nothing: without updates each seed plays
    the same final evaluation. Runs with one training `stream` are one row, with the seeds of the others in `copies`.
    The columns of `FACTS` are those of the table `tasks`, NaN where it does not know a run's task and protocol.
    """
    runs = load("runs", root, tier) if runs is None else runs
    curves = headline(load("curves", root, tier))
    if nameless := [run_id for run_id, *names in runs[["run_id", "task", "agent"]].to_numpy() if not all(names)]:
        raise UserError(f"the row {nameless[0]!r} of the table runs names no task or no agent; repair or remove it")
    runs = _chosen(runs, task, agents, tuning)
    columns = ["run_id", "task", "protocol", "agent", "tier", "seed", "updates", "env_steps", "wall_s", "stream"]
    frame = runs[columns].assign(config=runs["config"].map(_digest))
    frame["state"] = runs["status"].where(runs["status"].isin(["finished", "failed"]), "unfinished")
    final = curves[curves["final"].astype(bool)]
    for metric in METRICS:
        frame[metric] = frame["run_id"].map(final.groupby("run_id")[f"{metric}_mean"].last())
        frame[f"best_{metric}"] = frame["run_id"].map(curves.groupby("run_id")[f"{metric}_mean"].max())
    frame = frame.merge(load("tasks", root, tier)[[*TASK, *FACTS]], on=TASK, how="left")
    frame[FACTS] = frame[FACTS].astype(float)
    values = [*METRICS, *(f"best_{metric}" for metric in METRICS)]
    frame[values] = frame[values].astype(float).where(frame["state"] == "finished")
    frame.loc[(frame["state"] == "finished") & frame["return"].isna(), "state"] = "failed"
    frame = _once(frame[~_repeats(frame)])
    order = [natural(task) for task in frame["task"]]
    rows = zip(
        order, *(frame[key] for key in ("tier", "protocol", "agent", "config", "seed")), range(len(frame)), strict=True
    )
    return frame.iloc[[row[-1] for row in sorted(rows)]].reset_index(drop=True)


def count_tuning(runs: pd.DataFrame, task: str = "*", agents: Sequence[str] | None = None) -> int:
    """How many rows of the table `runs` `scores` leaves out because they have tuning seeds."""
    return len(_chosen(runs, task, agents, tuning=True))


def _chosen(runs: pd.DataFrame, task: str, agents: Sequence[str] | None, tuning: bool) -> pd.DataFrame:
    keep = [
        fnmatchcase(each, task)
        and (seed >= FIRST_TUNING_SEED) == tuning
        and any(fnmatchcase(agent, pattern) for pattern in agents or "*")
        for each, agent, seed in zip(runs["task"], runs["agent"], runs["seed"], strict=True)
    ]
    return runs.loc[keep]  # not runs[keep]: of an empty list that takes no columns


def solved_at(runs: pd.DataFrame) -> float | None:
    """The final return from which a seed of these runs of one task counts as solved, or None."""
    known = runs["solved_at"].dropna()
    return None if known.empty else float(known.iloc[0])


def one_cell(runs: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """For each task, tier and agent in `scores`: the runs of the protocol and configuration with the most ended seeds.

    Different protocols or configurations are different results, so only one is shown; the second frame lists the
    others (task, tier, agent, protocol, config, n). Cells without an ended run are in neither.
    """
    cell = ["task", "tier", "agent", "protocol", "config"]
    sizes = runs[runs["state"] != "unfinished"].groupby(cell, sort=False).size().reset_index(name="n")
    sizes = sizes.sort_values("n", ascending=False, kind="stable")
    second = sizes.duplicated(cell[:3])
    return runs.merge(sizes.loc[~second, cell]), sizes[second]


def _digest(config: str) -> str:
    """Eight hex digits of the parts of `config` that decide a result, which threads and device do not."""
    try:
        parsed = json.loads(config)
        decides = {key: parsed.get(key) for key in DECIDES}
        (decides["hyperparameters"] or {}).pop("device", None)
    except (ValueError, AttributeError):  # written by another program: compared as text
        return sha256(config.encode()).hexdigest()[:8]
    return sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:8]


def _repeats(frame: pd.DataFrame) -> pd.Series:
    """Which finished runs of an agent without updates only repeat the result of its lowest seed."""
    cell = ["task", "tier", "protocol", "agent", "config"]
    finished = frame[frame["state"] == "finished"].sort_values("seed")
    cells = finished.groupby(cell)
    same = (cells["updates"].transform("max") == 0) & (cells["return"].transform("nunique") == 1)
    return (same & finished.duplicated(cell)).reindex(frame.index, fill_value=False)


def _once(frame: pd.DataFrame) -> pd.DataFrame:
    """Runs of a cell whose training was equal, bit for bit, once: the lowest seed, with the others in `copies`.

    Equal returns alone are no evidence, since agents without memory are honestly equal.
    """
    known = frame[(frame["state"] == "finished") & (frame["updates"] > 0) & (frame["stream"] != "")]
    cells = known.sort_values("seed").groupby(["task", "tier", "protocol", "agent", "config", "stream"])
    copies = pd.Series("", frame.index, dtype=object)
    dropped: list[int] = []
    for _, same in cells:
        first, *others = same.index
        copies[first] = ", ".join(map(str, same["seed"].iloc[1:]))
        dropped += others
    return frame.assign(copies=copies).drop(dropped)


def natural(task: str) -> tuple[str, int]:
    """A sorting key that puts passive-30 before passive-100."""
    head, _, tail = task.rpartition("-")
    return (head, int(tail)) if tail.isdigit() else (task, -1)
