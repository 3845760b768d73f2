"""Rules decided by hand-worked counts, through the real tables and the real claims file."""

import math
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from analysis import frames, rules
from analysis.claims import load_claims
from analysis.verdicts import judge, load_verdicts, to_text

ROOT = Path(__file__).parents[2]
CLAIMS = load_claims(ROOT / "reproduce" / "claims.yaml")
TASK = "long_term_memory/tmaze/passive-10"
NAN = math.nan
ONES, HALVES = [1.0] * 5, [0.5] * 5


def verdict(root, claim):
    return {each.claim.id: each for each in load_verdicts(CLAIMS, root)}[claim]


def test_without_runs_paper_claims_need_the_paper_tier(tmp_path):
    for each in load_verdicts(CLAIMS, tmp_path):
        assert each.outcome == ("needs paper tier" if each.claim.tier == "paper" else "not run")


def test_laptop_runs_never_judge_a_paper_claim(write_tmaze):
    root = write_tmaze({(n, "amago"): ONES for n in (10, 30, 100, 300, 1000, 3000, 10000)})
    assert verdict(root, "T1").outcome == "needs paper tier"
    assert verdict(root, "T1-laptop").outcome == "supported"


@pytest.mark.parametrize(
    ("at_100", "outcome"),
    [
        ([1, 1, 0.95, 1, 1], "supported"),  # 5 of 5: lower bound 0.05 ** (1/5) = 0.549 > 0.5
        ([1, 1, 0.94, 1, 1], "inconclusive"),  # 4 of 5: lower bound 0.343
        ([1, 1, NAN, 1, 1], "inconclusive"),  # a failed seed is an unsolved one
        ([0, 0.9, 0, 0, NAN], "inconclusive"),  # 0 of 5 of one of 3 tasks: 1 - (0.05 / 3) ** (1/5) = 0.559
        ([0, 0.9, 0, 0, 0, NAN], "contradicted"),  # 0 of 6: 1 - (0.05 / 3) ** (1/6) = 0.495 < 0.5
        ([1, 1, 1, 1], "inconclusive"),  # 4 of 4 seeds is too few, whatever they say
        ([0, 0, 0, 0], "inconclusive"),
        ([100, 0, 0, 0, 0], "inconclusive"),  # one good seed does not hide four bad ones
        ([], "inconclusive"),
    ],
)
def test_solved_share(write_tmaze, at_100, outcome):
    root = write_tmaze({(10, "amago"): ONES, (30, "amago"): ONES, (100, "amago"): at_100})
    assert verdict(root, "T1-laptop").outcome == outcome


def test_share_bounds_are_the_ones_that_decide(write_tmaze):
    part = verdict(write_tmaze({(10, "amago"): ONES}), "T1-laptop").parts[0]
    assert part.share.low == pytest.approx(0.05 ** (1 / 5)) and part.share.high == 1.0
    assert part.mean.kind == "degenerate" and part.mean.low is None


def test_memory_free_rule(write_tmaze):
    returns = {(n, "amago-memoryless"): [0.5, 0.55, 0.45, 0.3, -0.2] for n in (10, 30, 100)}
    assert verdict(write_tmaze(returns), "T3-laptop").outcome == "supported"


def test_an_agent_that_cannot_remember_but_does(write_tmaze):
    root = write_tmaze({(n, "amago-memoryless"): [1.0] * 6 if n == 30 else HALVES for n in (10, 30, 100)})
    contradicted = verdict(root, "T3-laptop")
    assert contradicted.outcome == "contradicted" and contradicted.reason == "passive-30 0 of 6"


def test_a_failed_run_does_not_support_a_claim_of_failure(write_tmaze):
    returns = {(n, "amago-memoryless"): [0.5, 0.5, 0.5, 0.5, NAN] for n in (10, 30, 100)}
    assert verdict(write_tmaze(returns), "T3-laptop").outcome == "inconclusive"


@pytest.mark.parametrize(
    ("gru_100", "gru_300", "outcome", "p"),
    [
        ([0.5] * 5, [0.5] * 3, "supported", 1 / (252 * 20)),
        (ONES, [0.5] * 3, "supported", 1 / 20),  # ties at 100, and 3 against 3 at 300: exactly the level
        (ONES, [1.0] * 3, "inconclusive", 1.0),  # all equal shows nothing
        (ONES, [1.0, 0.5, 0.5], "inconclusive", 4 / 20),  # 4 of the 6 runs at 300 solved: C(4, 3) of 20 ways do as well
    ],
)
def test_comparison_permutes_within_lengths(write_tmaze, gru_100, gru_300, outcome, p):
    amago = {(100, "amago"): ONES, (300, "amago"): [1.0] * 3}
    found = verdict(write_tmaze(amago | {(100, "amago-gru"): gru_100, (300, "amago-gru"): gru_300}), "T2-laptop")
    assert (found.outcome, found.test.p) == (outcome, pytest.approx(p))


def test_comparison_the_other_way_round_is_contradicted(write_tmaze):
    low, high = [0.1, 0.2, 0.3, 0.4, 0.5], [0.6, 0.7, 0.8, 0.9, 1.0]
    root = write_tmaze({(n, a): v for n in (100, 300) for a, v in (("amago", low), ("amago-gru", high))})
    assert verdict(root, "T2-laptop").outcome == "contradicted"


def test_a_sure_but_small_difference_is_not_the_claim(write_tmaze):
    low, high = [0.90, 0.91, 0.92, 0.93, 0.94], [0.95, 0.96, 0.97, 0.98, 0.99]
    root = write_tmaze({(n, a): v for n in (100, 300) for a, v in (("amago", high), ("amago-gru", low))})
    found = verdict(root, "T2-laptop")
    assert found.outcome == "inconclusive" and "below the 0.15" in found.reason


def test_too_few_or_missing_seeds_of_a_comparison(write_tmaze):
    root = write_tmaze({(300, a): [v] * 3 for a, v in (("amago", 1.0), ("amago-gru", 0.5))})
    assert verdict(root, "T2-laptop").reason == "no finished run of amago on passive-100"
    root = write_tmaze({(100, a): [v] for a, v in (("amago", 1.0), ("amago-gru", 0.5))})
    assert verdict(root, "T2-laptop").reason == "amago has 4 of the 5 seeds that the rule needs"


def test_p_is_corrected_over_the_comparisons_of_the_figure(write_tmaze):
    root = write_tmaze({(n, a): [v] * 5 for n in (100, 300) for a, v in (("amago", 1.0), ("amago-gru", 0.5))})
    claim = next(each for each in CLAIMS if each.id == "T2-laptop")
    twice = judge([claim, claim], frames.scores(root))  # a family of two, both at 1 / 252 ** 2
    assert [each.test.p for each in twice] == [pytest.approx(2 / 252**2)] * 2


def test_rows_of_two_protocols_are_not_judged_together(write_tmaze, write_run):
    write_tmaze({(10, "amago"): ONES[:2]}, protocol="aaaaaaaa")
    root = write_tmaze({(10, "amago-gru"): [1.0], (30, "amago"): ONES, (100, "amago"): ONES}, protocol="bbbbbbbb")
    write_run(TASK, "amago", 4, 1.0, protocol="bbbbbbbb")
    assert "mixes the protocols" in verdict(root, "T1-laptop").reason


def test_rows_of_two_configurations_are_not_judged_together(write_tmaze, write_run):
    root = write_tmaze({(n, "amago"): ONES for n in (10, 30, 100)}, config='{"hyperparameters": {"lr": 1}}')
    assert verdict(root, "T1-laptop").outcome == "supported"
    write_run("long_term_memory/tmaze/passive-30", "amago", 5, 1.0, config='{"hyperparameters": {"lr": 2}}')
    found = verdict(root, "T1-laptop")
    assert found.outcome == "inconclusive" and "amago on passive-30 mixes the configurations" in found.reason


def test_no_t_interval_stands_beside_seeds_that_are_solved_or_not(write_tmaze):
    root = write_tmaze({(n, a): [1.0, 0.5, 0.9] for n in (10, 30, 100, 300) for a in ("amago", "amago-gru")})
    text = " ".join(to_text(load_verdicts(CLAIMS, root)).split())
    assert "passive-300, amago-gru: mean 0.800, n = 3; share 0.33 [" in text and "% t" not in text


def test_tuning_seeds_and_unfinished_runs_are_no_results(write_tmaze, write_run):
    root = write_tmaze({(10, "amago"): [1.0, 1.0]}, status="interrupted", best=1.0)
    write_run(TASK, "amago", 1000, 1.0)
    found = verdict(root, "T1-laptop")
    assert found.outcome == "not run" and "2 unfinished" in found.reason


def test_published_and_measured_stand_side_by_side(write_tmaze):
    root = write_tmaze({(n, "amago"): [1, 1, 1, 1, NAN] for n in (10, 30, 100)})
    text = " ".join(to_text([verdict(root, "T1-laptop")]).split())
    assert "restates T1 at the tier laptop; not the paper's claim" in text
    assert "published 1 (" in text and "n = 5, 1 failed; share 0.80 [0.34, 0.99] binomial, 95% each side" in text


@dataclass(frozen=True)
class EverySeed(rules.Rule):
    """A kind that this project does not have."""

    allowed: int = 0

    def judge(self, parts, tests):
        lacking = sum((part.scores < self.threshold).sum() for part in parts)
        return rules.Finding("supported" if lacking <= self.allowed else "contradicted", f"{lacking} seeds below")

    def describe(self):
        return f"all seeds but {self.allowed} reach {self.threshold:g}"


def test_a_new_kind_is_one_class_and_one_entry(write_tmaze, tmp_path, monkeypatch):
    monkeypatch.setitem(rules.KINDS, "every_seed", EverySeed)
    document = yaml.safe_load((ROOT / "reproduce" / "claims.yaml").read_text())
    (entry,) = (each for each in document["claims"] if each["id"] == "T1")
    entry["rule"] = {key: entry["rule"][key] for key in ("agents", "metric", "threshold", "confidence")}
    entry["rule"] |= {"kind": "every_seed", "tasks": [TASK], "minimum_seeds": 1}
    lenient = entry | {"id": "lenient", "rule": entry["rule"] | {"allowed": 1}}
    (tmp_path / "claims.yaml").write_text(yaml.safe_dump({"schema": 1, "claims": [entry, lenient]}))
    root = write_tmaze({(10, "amago"): [1.0, 0.5, 1.0]}, tier="paper")
    found = load_verdicts(load_claims(tmp_path / "claims.yaml"), root)
    assert [each.outcome for each in found] == ["contradicted", "supported"]
    assert "(1 seeds below)" in to_text(found) and "all seeds but 1 reach 0.99" in to_text(found)
