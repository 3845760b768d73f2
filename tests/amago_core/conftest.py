"""One thread for every test, and small agents and batches by the names of fixtures."""

from collections.abc import Callable, Iterator

import pytest
import torch

from amago_core.agent import Agent
from amago_core.sequences import Batch
from tests.amago_core.tiny import random_batch, tiny_agent


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def make_agent() -> Callable[..., Agent]:
    return tiny_agent


@pytest.fixture
def make_batch() -> Callable[..., Batch]:
    return random_batch
