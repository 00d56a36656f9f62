"""The packages of the corpus, by trade."""

from __future__ import annotations

from tests.packages.table import Package
from tests.packages.trades import engineering, finance, statistics

TRADES = {
    "Statistics and learning": statistics.PACKAGES,
    "Finance": finance.PACKAGES,
    "Engineering": engineering.PACKAGES,
}

PACKAGES: dict[str, Package] = {package.name: package for trade in TRADES.values() for package in trade}

SAMPLE = ("numpy-financial", "iapws", "fluids", "transforms3d", "sgp4", "filterpy")
"""Light packages, whose first calls are run for each submission."""
