"""Which float32 products of a GPU round their factors to TF32, which has a mantissa of 10 bits instead of 23."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch


@contextmanager
def float32_products(precision: Literal["ieee", "tf32"]) -> Iterator[None]:
    """Float32 products on a GPU are exact (`ieee`) meanwhile, or fast (`tf32`).

    PyTorch keeps this for the whole process, so what was set before is set again at the end. Forward passes are exact:
    under autocast only products that decide small differences are float32 at all (agent.md 6.3). A GRU is exact in
    both directions, since cuDNN wants one precision for the two, and PyTorch's default for it would be TF32.
    """
    matmul: Any = torch.backends.cuda.matmul  # PyTorch's own stubs do not know the attribute
    rnn: Any = torch.backends.cudnn.rnn
    before = matmul.fp32_precision, rnn.fp32_precision
    matmul.fp32_precision, rnn.fp32_precision = precision, "ieee"
    try:
        yield
    finally:
        matmul.fp32_precision, rnn.fp32_precision = before
