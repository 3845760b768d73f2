"""Every fault of a claims file is one line that names the file, the line and the claim."""

from pathlib import Path

import pytest

from analysis import frames
from analysis.claims import ClaimError, load_claims
from analysis.figures import FIGURES

ROOT = Path(__file__).parents[2]
REAL = ROOT / "reproduce" / "claims.yaml"

GOOD = """\
schema: 1
claims:
  - id: A
    figure: passive-tmaze
    tier: paper
    statement: s
    source: paper
    published: {value: 1, where: here}
    rule:
      kind: solved_share
      agents: [amago]
      tasks: [long_term_memory/tmaze/passive-10]
      metric: return
      threshold: 0.9
      confidence: 0.95
      minimum_seeds: 5
"""
FIGURE = "    figure: passive-tmaze\n"
TASKS = "[long_term_memory/tmaze/passive-10]"


def fault(tmp_path, text):
    path = tmp_path / "claims.yaml"
    path.write_text(text)
    with pytest.raises(ClaimError) as caught:
        load_claims(path)
    message = str(caught.value)
    assert "\n" not in message and message.startswith(str(path))
    return message.removeprefix(str(path))


def test_the_real_file(tmp_path):
    claims = load_claims(REAL)
    assert {claim.id: claim.restates for claim in claims if claim.restates} == {
        f"{name}-laptop": name for name in ("T1", "T2", "T3", "P1", "P2", "P3", "P4", "P5")
    }
    assert [claim.id for claim in claims if not claim.restates] == [
        "T1",
        "T2",
        "T3",
        *("P1", "P2", "P3", "P4", "P4b", "P5"),
    ]
    assert all(claim.rule.tasks == FIGURES["popgym"].tasks("paper") for claim in claims if claim.id in ("P1", "P4b"))


def test_published_values_of_the_real_file_are_those_of_the_table():
    published = frames.load("published").query("figure == 'passive_tmaze'")
    values = {claim.id: claim.published.value for claim in load_claims(REAL)}
    assert values["T1"] == values["T1-laptop"] == published.query("agent == 'amago'")["value"].min()
    rnn = published.query("agent == 'ni2022-rnn' and x >= 256")["value"]
    assert values["T2"] == values["T2-laptop"] == rnn.max()


def test_published_values_of_popgym_are_those_of_the_table():
    published = (
        frames.load("published")
        .query("figure == 'popgym_summary'")
        .set_index(["metric", "agent", "x_kind"])
        .sort_index()
    )
    values = {claim.id: claim.published.value for claim in load_claims(REAL)}
    standard = published.loc["return_standardised", "value"]
    below = standard["amago", "below_q1_point"]
    amago = (below.sum() + 39 - len(below)) / 39  # the others are 1 or hardly less
    for claim, agent in [("P1", "amago-naive"), ("P2", "popgym-best-on-policy"), ("P5", "popgym-gru")]:
        assert values[claim] == values[f"{claim}-laptop"]
        assert values[claim] == pytest.approx(amago - standard[agent, "mean"].item(), abs=2e-3)
    assert values["P3"] == published.loc["return", "amago", "mean"]["value"].item()
    assert values["P4"] == pytest.approx(below.min(), abs=1e-3)
    assert values["P4b"] == pytest.approx((standard["amago-naive", "below_q1_point"] < 0.4).sum() / 39, abs=1e-3)


def test_a_good_file_gives_numbers_as_numbers(tmp_path):
    (tmp_path / "claims.yaml").write_text(GOOD)
    (claim,) = load_claims(tmp_path / "claims.yaml")
    assert claim.published.value == 1.0 and isinstance(claim.published.value, float)
    assert (
        claim.rule.tasks == ("long_term_memory/tmaze/passive-10",)
        and claim.rule.share == 0.5
        and claim.restates is None
    )


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (FIGURE, "", ":3: claim A: 'figure' is missing"),
        (FIGURE, "    figur: f\n", ":3: claim A: unknown key 'figur'"),
        ("      metric: return\n", "      metrik: return\n", ":3: claim A: 'rule': unknown key 'metrik'"),
        (
            "metric: return",
            "metric: score",
            "unknown metric 'score' (known: return, success, normalised, relative, collapsed)",
        ),
        ("solved_share", "solved", "unknown kind 'solved' (known: solved_share, below, comparison, mean)"),
        ("tier: paper", "tier: desktop", "unknown tier 'desktop'"),
        ("tier: paper", "tier: laptop", "must say what it 'restates'"),
        ("tier: paper", "tier: laptop\n    restates: B", "restates 'B', which is no earlier claim"),
        ("threshold: 0.9", "threshold: high", "'threshold' must be float, not 'high'"),
        ("threshold: 0.9", "threshold: .nan", "threshold nan is not a finite number"),
        ("threshold: 0.9", "threshold: true", "'threshold' must be float, not True"),
        ("confidence: 0.95", "confidence: 95", "confidence 95.0 is not between 0.5 and 1"),
        ("minimum_seeds: 5", "minimum_seeds: 3", "3 seeds cannot show a share above 0.5 at confidence 0.95"),
        ("minimum_seeds: 5", "minimum_seeds: 5.0", "'minimum_seeds' must be int, not 5.0"),
        ("[amago]", "[amago, amago-gru]", "kind 'solved_share' needs 1 agent(s), not 2"),
        ("solved_share", "comparison", "kind 'comparison' needs 2 agent(s), not 1"),
        ("kind: solved_share", "kind: mean\n      share: 0.5", ": 'rule': unknown key 'share' (known: kind, agents"),
        ("      kind: solved_share\n", "", ":3: claim A: 'rule': 'kind' is missing"),
        ("kind: solved_share", "kind: [mean]", ":3: claim A: 'rule': 'kind' must be str, not ['mean']"),
        (TASKS, "a/b/c", "'tasks' must be a list of names, not 'a/b/c'"),
        (TASKS, "[a/b/c, a/b/c]", "a task or an agent is named twice"),
        (TASKS, "[]", "'tasks' must be a list of names"),
        (TASKS, "[a/b/c]", ":3: claim A: figure passive-tmaze has no run of amago on a/b/c at the tier paper"),
        (FIGURE, "    figure: tmaze\n", ":3: claim A: unknown figure 'tmaze' (known: passive-tmaze, popgym)"),
        ("[amago]", "[random]", "figure passive-tmaze has no run of random on long_term_memory/tmaze/passive-10"),
        ("minimum_seeds: 5", "minimum_seeds: 6", ":3: claim A: minimum_seeds is 6, but figure passive-tmaze plans 5"),
        ("schema: 1", "schema: true", ": must start with 'schema: 1'"),
        ("schema: 1", "schema: " + "[" * 5000, ": not readable as YAML (nested too deeply)"),
        ("{value: 1, where: here}", "1", "'published' must be a mapping, not 1"),
        (FIGURE, "    figure: f\n    figure: g\n", ":3: not readable as YAML (a key is given twice"),
        (FIGURE, "    figure: [f\n", ": not readable as YAML"),
        ("schema: 1", "schema: 2", ": must start with 'schema: 1'"),
        ("schema: 1", "schema: 1\nextra: 1", ": must hold 'schema' and the list 'claims'"),
        ("  - id: A\n", "  - B\n  - id: A\n", ": a claim must be a mapping, not 'B'"),
    ],
)
def test_faults(tmp_path, old, new, expected):
    assert old in GOOD
    assert expected in fault(tmp_path, GOOD.replace(old, new))


def test_a_mean_needs_two_seeds(tmp_path):
    text = GOOD.replace("solved_share", "mean").replace("minimum_seeds: 5", "minimum_seeds: 1")
    assert "a mean needs minimum_seeds of 2 or more" in fault(tmp_path, text)


def test_an_id_is_unique(tmp_path):
    entry = GOOD.split("claims:\n")[1]
    assert ":17: claim A: id 'A' is used twice" in fault(tmp_path, GOOD + entry)


def test_a_missing_file_and_no_text(tmp_path):
    with pytest.raises(ClaimError, match="cannot be read"):
        load_claims(tmp_path / "none.yaml")
    (tmp_path / "claims.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ClaimError, match="not UTF-8"):
        load_claims(tmp_path / "claims.yaml")


def test_no_code_is_loaded(tmp_path):
    assert "not readable as YAML" in fault(
        tmp_path, GOOD.replace("figure: passive-tmaze", "figure: !!python/name:os.system")
    )
