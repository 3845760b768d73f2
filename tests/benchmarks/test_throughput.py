"""The benchmarks count what they say they count."""

import numpy as np
import pytest
from torch.utils.flop_counter import FlopCounterMode

from amago_core.learner import Learner
from amago_core.sampler import Sampler
from benchmarks.throughput import cases, report
from benchmarks.throughput.share import Turns, timed_run
from results.errors import UserError

TINY = cases.SMALL.replace({"attention": "blocked", "batch_sequences": 3})


def test_the_flops_of_an_update_are_those_that_pytorch_counts(tmp_path):
    tokens = 40
    agent = cases._agent(TINY, tokens)
    replay = cases.filled_replay(agent, tmp_path, tokens, rollouts=4)
    batch = Sampler(replay, 3, 10**9, tokens).sample(np.random.default_rng(0))
    learner = Learner(agent)
    with FlopCounterMode(display=False) as counter:
        learner.update(batch)
    attention = 3 * TINY.layers * 2 * 3 * tokens * tokens * TINY.width  # we count the causal half, it the whole
    ours = cases.update_flops(TINY, agent, 3, tokens) + attention
    # It sees one token less a sequence in the heads, the power iterations, and no gradient of the raw input.
    assert counter.get_total_flops() == pytest.approx(ours, rel=0.06)


def test_acting_counts_the_steps_of_all_slots():
    work = cases.acting(3, TINY)
    assert work.steps == 3 * (cases.CORRIDOR + 1)
    work.call()


def test_what_the_benchmarks_lack_is_said_in_one_line(monkeypatch):
    monkeypatch.setattr(report, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"need pytest-benchmark: pip install 'amago-bench\[bench\]'$"):
        report.run()


def test_the_report_says_how_much_faster_in_products_of_the_two_machines():
    record = {
        "name": "update-small", "threads": 2, "dtype": "float32", "median": 0.060, "products": 3.0,
        "steps_per_s": 0.0, "gflops": 80.4, "product_gflops": 430.0,
    }  # fmt: skip
    acting = record | {"name": "acting-12", "steps_per_s": 10_200.0, "gflops": 0.0}
    first, second = report.rows([record, acting])  # products are twice as fast here as there
    assert first == ("update-small", "2", "float32", "60.0 ms", "80 of 430 GFLOP/s", "3.0", "180 ms", "1.5")
    assert second[4:] == ("10,200 steps/s", "3.0", "5,100 steps/s", "1.0")
    harness = {"name": "harness share of a run", "threads": 1, "dtype": "float32", "median": 7.0, "share": 0.021}
    popgym = {"name": "acting-64, POPGym", "threads": 2, "dtype": "float32", "median": 9.0, "product_gflops": 215.0}
    (rates,) = report.rows([popgym | {"rates": {"a": 30_000.0, "b": 11_000.0, "c": 22_000.0}}])
    assert rates[4:] == ("22,000 steps/s, median of 3; 11,000 to 30,000", "", "5,500 steps/s", "4.0")
    bfloat16 = record | {"dtype": "bfloat16", "median": 0.030, "product_gflops": 900.0}
    assert report.rows([bfloat16, record])[0][-2:] == ("180 ms", "3.0")  # the official one has no bfloat16
    assert report.rows([bfloat16])[0][-2:] == ("180 ms", "")  # no float32 product of this machine
    assert report.rows([harness])[0][3:] == ("7000.0 ms", "2.1% of it", "", "", "")


def test_every_second_of_a_run_has_one_owner():
    """The harness 1 s, the agent 2 s, in it the harness 4 s, in that the environment 8 s; and back, 1 s each."""
    now = [0.0]

    def spend(seconds, then=lambda: None):
        now[0] += seconds
        then()
        now[0] += 1.0

    turns = Turns(lambda: now[0])
    environment = turns.of("environment", lambda: spend(8.0))
    agent = turns.of("agent", lambda: spend(2.0, turns.of("harness", lambda: spend(4.0, environment))))
    spend(1.0, agent)
    turns.give("harness")
    assert turns.seconds == {"harness": 2.0 + 5.0, "agent": 3.0, "environment": 9.0}


def test_a_turn_ends_with_an_error_too():
    now = [0.0]
    turns = Turns(lambda: now[0])
    with pytest.raises(ZeroDivisionError):
        turns.of("agent", lambda: 1 / 0)()
    now[0] = 3.0
    turns.give("harness")
    assert turns.seconds["harness"] == 3.0


@pytest.mark.slow
def test_the_harness_takes_less_than_3_percent_of_a_run():
    seconds = timed_run()
    assert min(seconds.values()) > 0
    assert seconds["harness"] / sum(seconds.values()) < 0.03, seconds
