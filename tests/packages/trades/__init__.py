"""The packages of the corpus, by trade."""

from __future__ import annotations

from tests.packages.table import Package
from tests.packages.trades import (
    astronomy,
    chemistry,
    earth,
    engineering,
    finance,
    geometry,
    learning,
    physics,
    signals,
    society,
    statistics,
)

TRADES = {
    "Statistics": statistics.PACKAGES,
    "Learning, optimisation and tools": learning.PACKAGES,
    "Finance": finance.PACKAGES,
    "Engineering": engineering.PACKAGES,
    "Geometry and meshes": geometry.PACKAGES,
    "Fields, waves and networks": physics.PACKAGES,
    "Signals, sound and colour": signals.PACKAGES,
    "Chemistry and heat": chemistry.PACKAGES,
    "Astronomy and spaceflight": astronomy.PACKAGES,
    "Earth, oceans and weather": earth.PACKAGES,
    "People, health and transport": society.PACKAGES,
}

PACKAGES: dict[str, Package] = {package.name: package for trade in TRADES.values() for package in trade}

SAMPLE = (
    "numpy-financial",
    "iapws",
    "fluids",
    "transforms3d",
    "sgp4",
    "filterpy",
    "haversine",
    "seawater",
    "pymap3d",
    "properscoring",
    "pyxsteam",
    "pyquaternion",
)
"""Light packages, whose first calls are run for each submission."""
