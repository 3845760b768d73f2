"""The suite from Python, in one place:

import amago_bench as ab

run = ab.run("long_term_memory/tmaze/passive-10", "amago")       # trains, or finds it done
ab.sweep("long_term_memory/tmaze/*", ["amago", "random"], seeds=3)
ab.table(task="long_term_memory/tmaze/*")                        # a DataFrame, the numbers of `amago-bench table`
run = ab.load("long_term_memory/tmaze/passive-10", "amago")
run.rows("curves"), run.act(observation), run.evaluate(rollouts=100)
ab.tasks(), ab.agents()                                          # by id
"""

from __future__ import annotations

try:
    from reproduce.shadows import shadowed
except ImportError as error:  # a reproduce.py of the user's
    raise ImportError(f"{error}; rename your reproduce.py: AMAGO Bench has a package of that name") from None

if problem := shadowed():  # such as a results.py beside a notebook
    raise ImportError(problem)

from analysis.table import summary as table
from benchmarks.agents import agents
from benchmarks.agents.protocol import Progress, VectorStep
from benchmarks.api import LoadedRun, load, run, sweep
from benchmarks.catalog import tasks
from benchmarks.task import Budget, Task

__all__ = ["Budget", "LoadedRun", "Progress", "Task", "VectorStep", "agents", "load", "run", "sweep", "table", "tasks"]
