"""A sample of the sweep: values and derivatives keep their digits over the whole range."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("mpmath", reason="the sweep compares with mpmath: pip install mpmath")

from tests.accuracy.page import BOUND, REASONS
from tests.accuracy.references import REFERENCES
from tests.accuracy.sweep import sweep

ELEMENTARY = [
    name for name, reference in REFERENCES.items() if reference.bits == 4000 and name not in REASONS
]


@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("name", ELEMENTARY)
def test_derivatives_are_accurate_over_the_whole_range(name, dtype):
    for order, worst in sweep(name, dtype, 1).items():
        assert worst.ulps <= BOUND, f"derivative {order} at {worst.at}: {worst.ulps:.3g} ULP"
