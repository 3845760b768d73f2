"""Cart-pole from two of its four variables: a Kalman filter guesses the state, a linear regulator balances it.

The filter predicts with the true equations of motion and corrects with the gains of their linearisation about the
upright pole. Those depend on the time alone, so they are computed once and not for each slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from benchmarks.gate.vector_step import VectorStep

# Constants of gymnasium's CartPole-v1; the state is (position, velocity, angle, angular velocity).
GRAVITY, MASS, POLE_MASS, HALF_LENGTH, FORCE, TAU = 9.8, 1.1, 0.1, 0.5, 10.0, 0.02
START_SIGMA = 0.05 / 3**0.5  # each variable starts uniform in +-0.05
MODEL_SIGMA = 1e-4  # of a step's prediction: little, because the model is exact and only its gains are linearised
POSITIONS, VELOCITIES = (0, 2), (1, 3)


@dataclass
class _Memory:
    state: np.ndarray  # [B, 4], the estimate
    time: np.ndarray  # [B], steps since the reset
    push: np.ndarray  # [B], the last force, -1 or 1


@dataclass(frozen=True)
class CartPole:
    """Pushes towards where the regulator wants the force to be.

    Args:
        seen: indices of the two variables that are seen after a step. At the reset the positions are always seen,
            even in VelocityOnlyCartPole: a fault of popgym 1.0.7.
        sigma: of the noise on what is seen.
        horizon: steps of a rollout.
    """

    seen: tuple[int, int]
    sigma: float
    horizon: int

    def __call__(self, step: VectorStep, memory: _Memory | None) -> tuple[np.ndarray, _Memory]:
        if memory is None:
            memory = _Memory(np.zeros((len(step.first), 4)), *np.zeros((2, len(step.first)), np.int64))
        time = np.where(step.first, 0, memory.time + 1)
        state = np.where(step.first[:, None], 0.0, move(memory.state, memory.push))
        expected = np.where(step.first[:, None], state[:, list(POSITIONS)], state[:, list(self.seen)])
        gain = gains(self.seen, self.sigma, self.horizon)[time]  # [B, 4, 2]
        state += (gain @ (step.observation - expected)[:, :, None])[:, :, 0]
        right = state @ regulator() < 0
        return right.astype(np.int64), _Memory(state, time, np.where(right, 1, -1))


def move(state: np.ndarray, push: np.ndarray) -> np.ndarray:
    """One Euler step of the cart-pole, [B, 4], under a push of -1 or 1."""
    _, velocity, angle, spin = state.T
    sin, cos = np.sin(angle), np.cos(angle)
    total = (FORCE * push + POLE_MASS * HALF_LENGTH * spin**2 * sin) / MASS
    turn = (GRAVITY * sin - cos * total) / (HALF_LENGTH * (4 / 3 - POLE_MASS * cos**2 / MASS))
    change = np.stack([velocity, total - POLE_MASS * HALF_LENGTH * turn * cos / MASS, spin, turn], axis=1)
    return state + TAU * change


def linearised() -> tuple[np.ndarray, np.ndarray]:
    """The matrices [4, 4] and [4] of `move` about the upright pole."""
    small = 1e-6
    states = np.vstack([small * np.eye(4), np.zeros((1, 4))])
    moved = move(states, np.zeros(5)) / small
    return moved[:4].T, move(np.zeros((1, 4)), np.ones(1))[0]


@cache
def gains(seen: tuple[int, int], sigma: float, horizon: int) -> np.ndarray:
    """Kalman gains for times 0 to `horizon`, [horizon + 1, 4, 2]."""
    matrix, _ = linearised()
    covariance, result = START_SIGMA**2 * np.eye(4), []
    for time in range(horizon + 1):
        look = np.eye(4)[list(POSITIONS if time == 0 else seen)]  # [2, 4]
        innovation = look @ covariance @ look.T + sigma**2 * np.eye(2)
        result.append(covariance @ look.T @ np.linalg.inv(innovation))
        covariance = matrix @ (covariance - result[-1] @ look @ covariance) @ matrix.T + MODEL_SIGMA**2 * np.eye(4)
    return np.array(result)


@cache
def regulator() -> np.ndarray:
    """The gains [4] of the linear-quadratic regulator: the force is minus their product with the state."""
    matrix, force = linearised()
    cost = value = np.diag([0.01, 0.0, 10.0, 0.5])
    for _ in range(2000):
        gain = force @ value @ matrix / (1.0 + force @ value @ force)
        value = cost + matrix.T @ value @ (matrix - np.outer(force, gain))
    return gain
