"""The pendulum from its angle alone: a Kalman filter guesses the state, dynamic programming swings it up.

Under noise the guess jumps with each observation, most of all along the direction in which the pendulum falls. The
dynamic program is told how far, or it would balance on the edge of what the torque can hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from benchmarks.gate.vector_step import VectorStep

# Constants of gymnasium's Pendulum-v1; the state is (angle from upright, angular velocity).
TAU, GRAVITY, TORQUE, MAX_SPEED, MAX_TORQUE = 0.05, 15.0, 3.0, 8.0, 2.0
START_SPEED_VARIANCE = 1 / 3  # uniform in +-1
MODEL_SIGMA = 0.01  # of a step's prediction: the filter's linearisation is not exact
TORQUES = np.linspace(-MAX_TORQUE, MAX_TORQUE, 21)
ANGLES, SPEEDS, SWEEPS = 60, 41, 100  # finer grids and more sweeps gain nothing; odd, so that a point is at rest


@dataclass
class _Memory:
    state: np.ndarray  # [B, 2], the estimate
    covariance: np.ndarray  # [B, 2, 2], of its error
    torque: np.ndarray  # [B], the last one


@dataclass(frozen=True)
class Pendulum:
    """Chooses the torque that costs least in the long run if the state is what the filter thinks.

    `sigma` is the standard deviation of the noise on the observed (cos, sin).
    """

    sigma: float

    def __call__(self, step: VectorStep, memory: _Memory | None) -> tuple[np.ndarray, _Memory]:
        slots = len(step.first)
        if memory is None:
            memory = _Memory(np.zeros((slots, 2)), np.zeros((slots, 2, 2)), np.zeros(slots))
        memory = correct(predict(memory), step.observation, self.sigma)
        start(step, memory, self.sigma)
        angle, speed = memory.state.T[:, :, None]
        next_angle, next_speed = move(angle, speed, TORQUES)  # [B, torques]
        future = blend(cost_to_go(self.sigma), *corner(next_angle, next_speed))
        memory.torque = TORQUES[(cost(angle, speed, TORQUES) + future).argmin(1)]
        return memory.torque[:, None].astype(np.float32), memory


def start(step: VectorStep, memory: _Memory, sigma: float) -> None:
    """Slots that have just been reset begin with the angle that they see, at rest."""
    cos, sin = step.observation[step.first].T
    memory.state[step.first] = np.stack([np.arctan2(sin, cos), np.zeros_like(sin)], axis=1)
    memory.covariance[step.first] = np.diag([sigma**2, START_SPEED_VARIANCE])


def predict(memory: _Memory) -> _Memory:
    """The estimate one step later, and its covariance."""
    angle, speed = memory.state.T
    slope = linearised(angle)
    covariance = slope @ memory.covariance @ slope.transpose(0, 2, 1) + MODEL_SIGMA**2 * np.eye(2)
    return _Memory(np.stack(move(angle, speed, memory.torque), axis=1), covariance, memory.torque)


def correct(memory: _Memory, observation: np.ndarray, sigma: float) -> _Memory:
    """Corrects the estimate by the observation's part across the expected direction, which measures the angle."""
    angle = memory.state[:, 0]
    cos, sin = observation.T
    surprise = sin * np.cos(angle) - cos * np.sin(angle)
    across = memory.covariance[:, 0]  # [B, 2]
    gain = across / (across[:, :1] + sigma**2)
    covariance = memory.covariance - gain[:, :, None] * across[:, None, :]
    return _Memory(memory.state + gain * surprise[:, None], covariance, memory.torque)


def linearised(angle: np.ndarray) -> np.ndarray:
    """The derivatives of `move` by angle and speed, [B, 2, 2], for angles [B]."""
    pull = GRAVITY * TAU * np.cos(angle)
    return np.stack([1 + TAU * pull, np.full_like(pull, TAU), pull, np.ones_like(pull)], 1).reshape(-1, 2, 2)


def move(angle: np.ndarray, speed: np.ndarray, torque: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One step of the pendulum."""
    speed = np.clip(speed + (GRAVITY * np.sin(angle) + TORQUE * torque) * TAU, -MAX_SPEED, MAX_SPEED)
    return angle + TAU * speed, speed


def cost(angle: np.ndarray, speed: np.ndarray, torque: np.ndarray) -> np.ndarray:
    """What a step costs, before popgym scales it."""
    from_upright = (angle + np.pi) % (2 * np.pi) - np.pi
    return from_upright**2 + 0.1 * speed**2 + 0.001 * torque**2


@cache
def cost_to_go(sigma: float) -> np.ndarray:
    """The least cost from each point of the grid, [angles, speeds], by value iteration.

    The state that it moves is the filter's guess, which at each step also jumps by one of three points of a normal
    distribution.
    """
    angles, speeds = np.arange(ANGLES) * 2 * np.pi / ANGLES, np.linspace(-MAX_SPEED, MAX_SPEED, SPEEDS)
    angle, speed, torque = np.meshgrid(angles, speeds, TORQUES[::4], indexing="ij")
    now, (angle, speed) = cost(angle, speed, torque), move(angle, speed, torque)
    jump_angle, jump_speed = 3**0.5 * upright_jump(sigma)
    corners = [
        (weight, corner(angle + sign * jump_angle, np.clip(speed + sign * jump_speed, -MAX_SPEED, MAX_SPEED)))
        for sign, weight in ((-1, 1 / 6), (0, 2 / 3), (1, 1 / 6))
    ]
    table = np.zeros((ANGLES, SPEEDS))
    for _ in range(SWEEPS):
        table = (now + sum(weight * blend(table, *where) for weight, where in corners)).min(-1)
    return table


def upright_jump(sigma: float) -> np.ndarray:
    """The standard deviation [2] of what an observation changes in the guess, once the filter has settled, upright."""
    slope, covariance = linearised(np.zeros(1))[0], np.diag([sigma**2, START_SPEED_VARIANCE])
    for _ in range(300):
        covariance = slope @ covariance @ slope.T + MODEL_SIGMA**2 * np.eye(2)
        variance = covariance[0, 0] + sigma**2
        gain = covariance[0] / variance
        covariance = covariance - np.outer(gain, covariance[0])
    jump: np.ndarray = gain * variance**0.5
    return jump


def corner(angle: np.ndarray, speed: np.ndarray) -> tuple[np.ndarray, ...]:
    """The grid point below each state, as angle and speed indices, and the fractions above it."""
    row, column = angle * ANGLES / (2 * np.pi), (speed + MAX_SPEED) * (SPEEDS - 1) / (2 * MAX_SPEED)
    top, left = np.floor(row).astype(int), np.minimum(column.astype(int), SPEEDS - 2)
    return top % ANGLES, left, row - top, column - left


def blend(table: np.ndarray, top: np.ndarray, left: np.ndarray, down: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Bilinear interpolation, periodic in the angle, for what `corner` gives."""
    flat = table.ravel()
    upper, lower = top * SPEEDS + left, (top + 1) % ANGLES * SPEEDS + left
    above = flat[upper] + right * (flat[upper + 1] - flat[upper])
    below = flat[lower] + right * (flat[lower + 1] - flat[lower])
    return above + down * (below - above)
