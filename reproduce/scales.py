"""Writes results/scales.json from the tasks: `python -m reproduce.scales` after a task or its scale has changed."""

from __future__ import annotations

import json
from importlib import import_module

from benchmarks import catalog
from results.scales import PATH, Scale
from results.store import replace_file


def stated() -> dict[str, Scale]:
    """The scale that each task of this repository states, by task id."""
    tasks = (task for module in catalog.MODULES for task in import_module(module).TASKS)
    return {task.id: Scale(task.random_return, task.high, task.high_source) for task in tasks}


if __name__ == "__main__":
    entries = {task: scale._asdict() for task, scale in sorted(stated().items())}
    replace_file(PATH, f"{json.dumps(entries, indent=1, allow_nan=False)}\n".encode())
