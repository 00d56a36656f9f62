"""Products of pandas' tables with traced arrays. Their other operators leave traced arrays to answer: see `Array.__pandas_priority__`."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.kinds.refusals import is_table, values_of
from gradtape.trace.routines.registry import refused, stands_for


@stands_for("pandas:core.frame.DataFrame.dot", "pandas:core.series.Series.dot")
def dot(self: Any, other: Any) -> Any:
    """Return ``table.dot(other)``, which is ``table @ other`` too, as an array."""
    values = values_of(self)
    if values is None:
        raise refused(
            f"{type(self).__name__}.dot with a traced array",
            "not all of its columns are numbers",
            "multiply the columns of numbers: df[['a', 'b']] @ x",
        )
    return np.dot(values, values_of(other) if is_table(other) else other)
