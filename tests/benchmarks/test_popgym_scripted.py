"""The hand-written policies against popgym, against numbers worked out by hand, and against brute force."""

import pickle
from functools import cache
from itertools import combinations
from math import comb
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

from benchmarks.agents.oracle import Oracle, Scripted
from benchmarks.agents.protocol import VectorStep
from benchmarks.catalog import get_task
from benchmarks.gate.evaluate import evaluate, evaluation_seeds
from benchmarks.long_term_memory.popgym.scripted import ORACLES, SCRIPTED, bandit, battleship, cartpole, pendulum
from benchmarks.long_term_memory.popgym.scripted.minesweeper import around, gives_up, risks, safest
from benchmarks.long_term_memory.popgym.tasks import FAMILIES, LEVELS, TASKS
from results.errors import UserError

pytest.importorskip("popgym")


def task_of(name):
    return get_task(f"long_term_memory/popgym/{name}")


def returns(name, rollouts, slots=20):
    task = task_of(name)
    agent = (Oracle if task.oracle else Scripted)(SimpleNamespace(task=task))
    episodes = evaluate(agent, task, evaluation_seeds(task.id, 0), rollouts, slots)
    return np.array([episode.episode_return for episode in episodes])


def see(observation, first=False):
    observation = np.asarray(observation)
    flags = np.full(len(observation), first)
    return VectorStep(observation, np.zeros(len(flags), np.float32), flags, ~flags & False)


# The hook


def test_each_task_has_one_of_the_two():
    names = {family + level for family in FAMILIES for level in LEVELS}
    assert ORACLES.keys() | SCRIPTED.keys() == names and not ORACLES.keys() & SCRIPTED.keys()
    assert all((task.oracle is None) != (task.scripted is None) for task in TASKS)
    assert all(callable(pickle.loads(pickle.dumps(policy))) for policy in (ORACLES | SCRIPTED).values())


@pytest.mark.parametrize(
    ("agent", "task", "lacks"), [(Oracle, "BattleshipEasy", "oracle"), (Scripted, "AutoencodeEasy", "scripted policy")]
)
def test_what_a_task_lacks_is_said(agent, task, lacks):
    with pytest.raises(UserError, match=f"popgym/{task} has no {lacks}"):
        agent(SimpleNamespace(task=task_of(task)))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_slot_does_not_depend_on_the_others(family):
    """Three slots, one of which starts again early, against that one alone."""
    task = task_of(f"{family}Easy")
    policy = task.oracle or task.scripted

    def actions(slots, mine):
        env, memory, taken = task.make(slots), None, []
        first = np.ones(slots, bool)
        observation, _ = env.reset(seed=[7 + slot - mine for slot in range(slots)])
        for t in range(60):
            step = VectorStep(observation, np.zeros(slots, np.float32), first, np.zeros(slots, bool))
            chosen, memory = policy(step, memory)
            taken.append(np.array(chosen[mine]))
            observation, _, done, *_ = env.step(chosen)
            first = done.copy()
            first[mine] |= t == 30
            if first.any():
                observation, _ = env.reset(options={"reset_mask": first})
        return np.array(taken)

    np.testing.assert_array_equal(actions(3, mine=1), actions(1, mine=0))


# Returns

PERFECT = ("Autoencode", "CountRecall", "RepeatFirst", "RepeatPrevious", "PositionOnlyCartPole", "VelocityOnlyCartPole")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("family", PERFECT)
def test_perfect_play_has_exactly_1(family, level):
    assert task_of(family + level).high == 1
    np.testing.assert_allclose(returns(family + level, rollouts=5, slots=5), 1, atol=1e-6)


@pytest.mark.parametrize("name", [f + level for f in FAMILIES if f not in PERFECT for level in LEVELS])
def test_the_mean_return_is_high(name):
    sample = returns(name, rollouts=40)
    known_to = 0.04 if name.startswith("MineSweeper") else 0.012  # the interval that tasks.py states
    assert abs(sample.mean() - task_of(name).high) < 4 * sample.std() / 40**0.5 + known_to
    assert sample.mean() > task_of(name).random_return + 0.1


# Cards


def higher_lower_return(ranks, copies):
    """The expectation of the best guess: what is left of the other cards, seen at random, is hypergeometric."""
    deck, total = ranks * copies, 0.0
    for rank in range(ranks):
        low, high, equal = copies * rank, copies * (ranks - 1 - rank), copies - 1
        for left in range(1, deck):
            gain = sum(
                comb(low, lows) * comb(high, highs) * comb(equal, left - lows - highs) * abs(highs - lows)
                for lows in range(min(low, left) + 1)
                for highs in range(min(high, left - lows) + 1)
            )
            total += gain / comb(deck - 1, left) / left / ranks
    return total / deck


def test_the_high_of_higher_lower_is_exact():
    assert higher_lower_return(2, 1) == 0.5  # one guess of two cards, always right
    assert higher_lower_return(3, 1) == pytest.approx((2 / 3 + 1) / 3)  # the middle card leaves a coin; then it is sure
    for level, decks in zip(LEVELS, (1, 2, 3), strict=True):
        assert higher_lower_return(13, 4 * decks) == pytest.approx(task_of(f"HigherLower{level}").high, abs=5e-5)


def expected_failures(values, copies, optimal):
    """Failed turns of Concentration by dynamic programming over the (seen, unseen) face-down cards of each value.

    The policy's, or those of the best choice at each card, which may also set pairs aside. The step limit is left out:
    each failure of the policy shows two new cards, and at least one card is shown by a match, so it never binds.
    """

    @cache
    def play(cards):
        unseen = sum(u for _, u in cards)
        if not unseen:
            return 0.0
        turns = [sum(u * respond(cards, i) for i, (_, u) in enumerate(cards) if u) / unseen]
        if optimal:  # or turn over a pair that is known, before anything else
            turns += [play(changed(cards, (i, -2, 0))) for i, (seen, _) in enumerate(cards) if seen >= 2]
        return min(turns)

    @cache
    def respond(cards, i):
        """A card of value i has just been turned."""
        seen, left = cards[i][0], sum(u for _, u in cards) - 1
        choices = [play(changed(cards, (i, -1, -1)))] if seen else []
        if left and (optimal or not seen):
            blind = (cards[i][1] - 1) * play(changed(cards, (i, 0, -2))) if cards[i][1] > 1 else 0.0
            for j, (_, u) in enumerate(cards):
                if j != i and u:
                    blind += u * (1 + play(changed(cards, (i, 1, -1), (j, 1, -1))))
            choices.append(blind / left)
        return min(choices)

    def changed(cards, *changes):
        new = [list(card) for card in cards]
        for i, seen, unseen in changes:
            new[i][0] += seen
            new[i][1] += unseen
        return tuple(sorted((seen, unseen) for seen, unseen in new if seen + unseen))

    return play(((0, copies),) * values)


def test_the_high_of_concentration_is_exact():
    assert expected_failures(2, 2, optimal=False) == pytest.approx(2 / 3)  # the second card fits in 1 of 3 cases
    for level, decks in (("Easy", 1), ("Medium", 2)):
        exact = 1 - 2 * expected_failures(2, 26 * decks, optimal=False) / (104 * decks)
        assert exact == pytest.approx(task_of(f"Concentration{level}").high, abs=5e-5)


@pytest.mark.parametrize("values", [1, 2, 3, 4])
def test_concentration_by_ranks_is_optimal(values):
    """With four cards a value nothing beats the policy; with more there is something to win by not matching at once."""
    assert expected_failures(values, 4, optimal=True) == pytest.approx(expected_failures(values, 4, optimal=False))
    assert expected_failures(2, 6, optimal=True) < expected_failures(2, 6, optimal=False) - 0.02


@pytest.mark.slow
def test_concentration_hard_is_optimal():
    best = expected_failures(13, 4, optimal=True)
    assert best == pytest.approx(expected_failures(13, 4, optimal=False))
    assert 1 - 2 * best / 104 == pytest.approx(task_of("ConcentrationHard").high, abs=5e-5)


# The bandit


def test_an_arm_that_always_pays_is_kept_and_one_that_never_does_is_left():
    policy, memory, arms = bandit.Bandit(arms=3, horizon=50), None, []
    for t in range(50):
        chosen, memory = policy(see([1, 0], first=t == 0), memory)
        arms.append(chosen.tolist())
    always, never = np.transpose(arms)
    assert (always == 0).all()
    assert never[:3].tolist() == [0, 1, 2] and np.bincount(never).max() <= 18  # the failures are shared out


def test_the_bandit_is_below_the_best_arm():
    """The best of n arms pays n / (n + 1) in the mean: the bound of the return is (n - 1) / (n + 1)."""
    for level, arms in zip(LEVELS, (10, 20, 30), strict=True):
        bound = (arms - 1) / (arms + 1)
        assert bound - 0.1 < task_of(f"MultiarmedBandit{level}").high < bound


def test_the_index_prefers_wins_and_what_is_not_known():
    left = np.array([100.0])
    index = [float(bandit.index(np.array([w]), np.array([n]), left)[0]) for w, n in ((3, 1), (2, 2), (30, 30), (0, 0))]
    assert index[0] > index[1] > index[2] and index[3] > index[2]


# Battleship


def test_the_places_of_one_ship_are_counted(monkeypatch):
    """Three cells in a row on 3 x 3: a corner is in 2 of 6 places, a middle in 2, the centre in 2."""
    monkeypatch.setattr(battleship, "SHIPS", (3,))
    board = np.zeros((2, 9), int)
    board[1, 4] = battleship.MISS
    empty, no_centre = battleship.occupancy(board, 3)[0]
    np.testing.assert_allclose(empty, 1 / 3)
    np.testing.assert_allclose(no_centre, [1 / 2, 1 / 4, 1 / 2, 1 / 4, 0, 1 / 4, 1 / 2, 1 / 4, 1 / 2])


def test_hits_are_explained(monkeypatch):
    """A hit corner: the ship of two lies along one of its two sides. All ships hit: nothing else is in question."""
    board = np.zeros((1, 64), int)
    board[0, 0] = battleship.HIT
    with monkeypatch.context() as patch:
        patch.setattr(battleship, "SHIPS", (2,))
        ship = battleship.occupancy(board, 8)[0, 0]
    np.testing.assert_allclose(ship[[0, 1, 8, 9]], [1, 1 / 2, 1 / 2, 0], atol=1e-4)
    lines = np.full((8, 8), battleship.MISS)
    for row, length in zip((0, 2, 4, 6), battleship.SHIPS, strict=True):
        lines[row, :length] = battleship.HIT
    ships = battleship.occupancy(lines.reshape(1, 64), 8)[:, 0]
    np.testing.assert_allclose(ships.sum(0).reshape(8, 8), lines == battleship.HIT, atol=1e-3)


def test_no_square_is_shot_at_twice():
    policy, memory, shots = battleship.Battleship(8), None, set()
    for t in range(64):
        chosen, memory = policy(see([0], first=t == 0), memory)
        shots.add(tuple(chosen[0].tolist()))
    assert len(shots) == 64 and max(max(shot) for shot in shots) == 7


# MineSweeper


@pytest.mark.parametrize(("side", "mines"), [(4, 2), (5, 3)])
def test_risks_by_brute_force(side, mines):
    rng = np.random.default_rng(0)
    layouts = np.array(
        [[square in layout for square in range(side**2)] for layout in combinations(range(side**2), mines)]
    )
    blocks = np.array([[block >> square & 1 for square in range(side**2)] for block in around(side)])
    numbers = layouts @ blocks
    for _ in range(60):
        truth = rng.integers(len(layouts))
        safe = np.flatnonzero(~layouts[truth])
        opened = rng.choice(safe, rng.integers(len(safe)), replace=False)
        fits = (numbers[:, opened] == numbers[truth, opened]).all(1) & ~layouts[:, opened].any(1)
        expected = layouts[fits].mean(0)
        expected[opened] = np.inf
        clues = frozenset(zip(opened.tolist(), numbers[truth, opened].tolist(), strict=True))
        np.testing.assert_allclose(risks(clues, side, mines), expected, atol=1e-12)


def test_the_safest_square_has_few_neighbours():
    assert risks(frozenset(), 4, 2) == pytest.approx(np.full(16, 1 / 8))
    assert safest(risks(frozenset(), 4, 2), [], 4) == 0  # a corner
    clear = risks(frozenset({(0, 0)}), 4, 2)
    assert (clear[[1, 4, 5]] == 0).all() and clear[2] == pytest.approx(1 / 6)  # two mines in 12 squares


def test_when_to_give_up():
    """One of 14 squares left: waiting costs 1/24, a guess pays 1/14 or costs 8/14, so it is even at 19/108."""
    assert gives_up(19 / 108 + 1e-6, left=1, safe=14) and not gives_up(19 / 108 - 1e-6, left=1, safe=14)
    assert not gives_up(0.0, left=1, safe=14)
    assert not gives_up(0.2, left=10, safe=14)


# Cart-pole and pendulum


def test_the_equations_of_motion_are_gymnasiums():
    rng = np.random.default_rng(0)
    cart, swing = gymnasium.make("CartPole-v1").unwrapped, gymnasium.make("Pendulum-v1").unwrapped
    cart.reset(seed=0)
    swing.reset(seed=0)
    for _ in range(50):
        state, action = rng.normal(size=4) * [1, 1, 0.1, 1], int(rng.integers(2))
        cart.state, cart.steps_beyond_terminated = state, None
        cart.step(action)
        np.testing.assert_allclose(cartpole.move(state[None], np.array([2 * action - 1]))[0], cart.state)
        angle, speed, torque = rng.uniform(-4, 4), rng.uniform(-8, 8), rng.uniform(-2, 2)
        swing.state = np.array([angle, speed])
        reward = swing.step(np.array([torque]))[1]
        np.testing.assert_allclose(pendulum.move(angle, speed, torque), swing.state)
        assert pendulum.cost(angle, speed, torque) == pytest.approx(-reward)


@pytest.mark.parametrize("seen", [cartpole.POSITIONS, cartpole.VELOCITIES])
def test_the_filter_knows_the_cart_after_two_observations(seen):
    state = np.random.default_rng(1).uniform(-0.05, 0.05, (5, 4))
    policy = cartpole.CartPole(seen, 1e-4, 200)
    action, memory = policy(see(state[:, list(cartpole.POSITIONS)], first=True), None)
    np.testing.assert_allclose(memory.state[:, list(cartpole.VELOCITIES)], 0)  # nothing is known of them yet
    for _ in range(2):
        state = cartpole.move(state, 2 * action - 1)
        action, memory = policy(see(state[:, list(seen)]), memory)
    np.testing.assert_allclose(memory.state, state, atol=2e-3)


def test_the_regulator_is_stable():
    matrix, force = cartpole.linearised()
    assert abs(np.linalg.eigvals(matrix)).max() > 1.05  # the pole falls
    assert abs(np.linalg.eigvals(matrix - np.outer(force, cartpole.regulator()))).max() < 1


def test_the_pendulum_filter_finds_the_speed():
    angle, speed = np.array([2.0, -1.0]), np.array([0.8, -0.5])
    policy = pendulum.Pendulum(1e-4)
    memory, first = None, True
    for _ in range(3):
        torque, memory = policy(see(np.stack([np.cos(angle), np.sin(angle)], 1), first), memory)
        assert (np.abs(torque) <= 2).all() and torque.dtype == np.float32 and torque.shape == (2, 1)
        known, first = np.stack([angle, speed], 1), False
        angle, speed = pendulum.move(angle, speed, torque[:, 0])
    np.testing.assert_allclose(memory.state[:, 0], known[:, 0], atol=1e-3)
    np.testing.assert_allclose(memory.state[:, 1], known[:, 1], atol=0.06)  # the filter allows for a model that errs


def test_the_cost_to_go_is_least_upright_and_periodic():
    table = pendulum.cost_to_go(1e-4)
    middle = pendulum.SPEEDS // 2
    assert table.min() == table[0, middle]
    assert table[pendulum.ANGLES // 2, middle] > 50 * table[0, middle]  # hanging still is the worst place to rest
    here = np.array([0.3, 3.0]), np.array([-2.0, 1.0])
    on_grid = pendulum.blend(table, *pendulum.corner(np.array([2 * np.pi * 7 / 60]), np.array([-8 + 16 * 5 / 40])))
    assert on_grid[0] == pytest.approx(table[7, 5])
    turned = pendulum.blend(table, *pendulum.corner(here[0] + 2 * np.pi, here[1]))
    np.testing.assert_allclose(turned, pendulum.blend(table, *pendulum.corner(*here)))


def test_more_noise_makes_the_guess_jump_more():
    jumps = [np.linalg.norm(pendulum.upright_jump(sigma)) for sigma in (1e-4, 0.1, 0.2, 0.3)]
    assert jumps == sorted(jumps) and jumps[0] < 0.02
