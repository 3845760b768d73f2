"""The figures, which know no environment, know the paper's tasks."""

from analysis.figures import FIGURES
from benchmarks.long_term_memory.popgym.tasks import LAPTOP_ENV_STEPS, PAPER_TASKS


def test_the_popgym_figure_has_the_papers_tasks():
    assert FIGURES["popgym"].tasks("paper") == PAPER_TASKS
    assert {task.rsplit("/", 1)[-1] for task in FIGURES["popgym"].tasks("laptop")} == set(LAPTOP_ENV_STEPS)
