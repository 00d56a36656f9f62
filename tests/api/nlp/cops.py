"""Problems of E. D. Dolan, J. J. Moré, T. S. Munson, Benchmarking Optimization Software with COPS 3.0, ANL/MCS-TM-273, 2004.

Each function makes a problem of a size, with a parameter that the report holds fixed.
"""

from __future__ import annotations

from collections.abc import Callable
from math import factorial
from typing import Any, NamedTuple

import numpy as np

INF = np.inf
GAUSS = {
    3: np.array([0.11270166537926, 0.5, 0.88729833462074]),
    4: np.array([0.06943184420297, 0.33000947820757, 0.66999052179243, 0.93056815579703]),
}
"""Points of Gauss and Legendre in an interval of length one."""


class Problem(NamedTuple):
    """A program in nested unknowns: `objective(x)`, functions that are zero, functions that are not negative, bounds."""

    objective: Callable[[Any], Any]
    start: Any
    equal: Callable[[Any], Any] | None = None
    positive: Callable[[Any], Any] | None = None
    bounds: Any = None

    def constraints(self) -> list[dict[str, Any]]:
        named = (("eq", self.equal), ("ineq", self.positive))
        return [{"type": name, "fun": function} for name, function in named if function is not None]


def trapezoid(values: Any, slopes: Any, step: Any) -> Any:
    """Return by how much values differ from those of the trapezoidal rule."""
    return values[1:] - values[:-1] - step / 2 * (slopes[1:] + slopes[:-1])


def polygon(count: int, diameter: Any = 1.0) -> Problem:
    """The largest polygon of a diameter, in polar coordinates around its last corner."""
    first, second = np.triu_indices(count - 1, 1)

    def area(x: Any) -> Any:
        r, angle = x["r"], x["angle"]
        return -0.5 * np.sum(r[1:] * r[:-1] * np.sin(angle[1:] - angle[:-1]))

    def positive(x: Any) -> Any:
        r, angle = x["r"], x["angle"]
        a, b = r[first], r[second]
        squares = a**2 + b**2 - 2 * a * b * np.cos(angle[second] - angle[first])
        return {"distance": diameter**2 - squares, "order": angle[1:] - angle[:-1]}

    at = np.arange(1, count) / count
    start = {"r": 4 * at * (1 - at), "angle": np.pi * at}
    high = {"r": diameter, "angle": np.pi}
    return Problem(area, start, None, positive, (0.0, high))


def electrons(count: int, radius: Any = 1.0) -> Problem:
    """Charges on a sphere."""
    first, second = np.triu_indices(count, 1)

    def energy(x: Any) -> Any:
        return np.sum(np.sum((x[first] - x[second]) ** 2, 1) ** -0.5)

    turn = np.arange(count) * np.pi * (3 - 5**0.5)
    height = 1 - (2 * np.arange(count) + 1) / count
    flat = np.sqrt(1 - height**2)
    start = np.stack([flat * np.cos(turn), flat * np.sin(turn), height], 1)
    return Problem(energy, start, lambda x: np.sum(x**2, 1) - radius**2)


def cam(count: int, slope: Any = 1.5) -> Problem:
    """The shape of a cam with the largest area."""
    low, high = 1.0, 2.0
    step = 2 * np.pi / (5 * (count + 1))

    def positive(r: Any) -> Any:
        ends = np.concatenate([np.array([low, low]), r, np.array([high]), r[-1:]])
        a, b, c = ends[:-2], ends[1:-1], ends[2:]
        last = 2 * high * r[-1] - 2 * r[-1] ** 2 * np.cos(step)
        near = np.concatenate([np.array([low]), r, np.array([high])])
        steps = near[1:] - near[:-1]
        convex = (a * b + b * c - 2 * a * c * np.cos(step))[:-1]
        return {"convex": convex, "last": last, "up": slope * step - steps, "down": slope * step + steps}

    return Problem(lambda r: -np.pi / count * np.sum(r), np.full(count, 1.5), None, positive, (low, high))


def chain(count: int, length: Any = 4.0) -> Problem:
    """The hanging chain of a length between the heights 1 and 3."""
    step, at = 1 / count, np.arange(count + 1) / count

    def equal(x: Any) -> Any:
        y, slope = x["y"], x["slope"]
        arc = np.sqrt(1 + slope**2)
        return {
            "y": trapezoid(y, slope, step),
            "energy": trapezoid(x["energy"], y * arc, step),
            "arc": trapezoid(x["arc"], arc, step),
            "ends": np.stack([y[0] - 1, y[-1] - 3, x["energy"][0], x["arc"][0], x["arc"][-1] - length]),
        }

    slope, y = 8 * (at - 0.25), 8 * at * (at / 2 - 0.25) + 1
    start = {"y": y, "slope": slope, "energy": y * slope, "arc": slope}
    return Problem(lambda x: x["energy"][-1], start, equal)


def steering(count: int, thrust: Any = 100.0) -> Problem:
    """A particle that is steered to a height and a speed in the shortest time."""
    at = np.arange(count + 1) / count

    def equal(x: Any) -> Any:
        step = x["end"] / count
        return {
            "x": trapezoid(x["x"], x["dx"], step),
            "y": trapezoid(x["y"], x["dy"], step),
            "dx": trapezoid(x["dx"], thrust * np.cos(x["angle"]), step),
            "dy": trapezoid(x["dy"], thrust * np.sin(x["angle"]), step),
            "first": np.stack([x[name][0] for name in ("x", "y", "dx", "dy")]),
            "last": np.stack([x["y"][-1] - 5, x["dx"][-1] - 45, x["dy"][-1]]),
        }

    zero = np.zeros(count + 1)
    start = {"x": zero, "y": 5 * at, "dx": 45 * at, "dy": zero, "angle": zero, "end": 1.0}
    free = dict.fromkeys(start, INF)
    high = free | {"angle": np.pi / 2}
    low = dict.fromkeys(start, -INF) | {"angle": -np.pi / 2, "end": 0.0}
    return Problem(lambda x: x["end"], start, equal, None, (low, high))


def robot(count: int, length: Any = 5.0) -> Problem:
    """A robot arm that is turned in the shortest time."""
    names = "rho", "theta", "phi"
    at = np.arange(count + 1) / count
    ends = {"rho": (4.5, 4.5), "theta": (0.0, 2 * np.pi / 3), "phi": (np.pi / 4, np.pi / 4)}

    def equal(x: Any) -> Any:
        q, speed, force = x["q"], x["speed"], x["force"]
        step = x["end"] / count
        inertia = ((length - q["rho"]) ** 3 + q["rho"] ** 3) / 3
        mass = {"rho": length, "theta": inertia * np.sin(q["phi"]) ** 2, "phi": inertia}
        made = {}
        for name in names:
            made[name] = trapezoid(q[name], speed[name], step)
            made["d" + name] = trapezoid(speed[name], force[name] / mass[name], step)
            first, last = ends[name]
            rest = q[name][0] - first, q[name][-1] - last, speed[name][0], speed[name][-1]
            made["ends of " + name] = np.stack(rest)
        return made

    zero = np.zeros(count + 1)
    start = {
        "q": {"rho": zero + 4.5, "theta": 2 * np.pi / 3 * at**2, "phi": zero + np.pi / 4},
        "speed": {"rho": zero, "theta": 4 * np.pi / 3 * at, "phi": zero},
        "force": dict.fromkeys(names, zero),
        "end": 1.0,
    }
    low = {"q": {"rho": 0.0, "theta": -np.pi, "phi": 0.0}, "speed": -INF, "force": -1.0, "end": 0.0}
    high = {"q": {"rho": 5.0, "theta": np.pi, "phi": np.pi}, "speed": INF, "force": 1.0, "end": INF}
    return Problem(lambda x: x["end"], start, equal, None, (low, high))


def rocket(count: int, drag: Any = 310.0) -> Problem:
    """The rocket of Goddard."""
    at = np.arange(count + 1) / count

    def equal(x: Any) -> Any:
        h, v, m, thrust, step = x["h"], x["v"], x["m"], x["thrust"], x["step"]
        force = thrust - drag * v**2 * np.exp(-500 * (h - 1))
        return {
            "h": trapezoid(h, v, step),
            "v": trapezoid(v, force / m - 1 / h**2, step),
            "m": trapezoid(m, -2 * thrust, step),
            "ends": np.stack([h[0] - 1, v[0], m[0] - 1, m[-1] - 0.6]),
        }

    ones = np.ones(count + 1)
    start = {"h": ones, "v": at * (1 - at), "m": 1 - 0.4 * at, "thrust": 1.75 * ones, "step": 1 / count}
    low = {"h": 1.0, "v": 0.0, "m": 0.6, "thrust": 0.0, "step": 0.0}
    high = {"h": INF, "v": INF, "m": 1.0, "thrust": 3.5, "step": INF}
    return Problem(lambda x: -x["h"][-1], start, equal, None, (low, high))


def glider(count: int, lift: Any = 2.5) -> Problem:
    """A hang glider that flies as far as it can through a thermal."""
    at = np.arange(count + 1) / count

    def equal(x: Any) -> Any:
        coefficient, step = x["lift"], x["end"] / count
        far = (x["x"] / 100 - 2.5) ** 2
        rise = x["dy"] - lift * (1 - far) * np.exp(-far)
        speed = np.sqrt(x["dx"] ** 2 + rise**2)
        pressure = 0.5 * 1.13 * 14 * speed
        drag = (0.034 + 0.069662 * coefficient**2) * pressure
        up = coefficient * pressure
        return {
            "x": trapezoid(x["x"], x["dx"], step),
            "y": trapezoid(x["y"], x["dy"], step),
            "dx": trapezoid(x["dx"], (-up * rise - drag * x["dx"]) / 100, step),
            "dy": trapezoid(x["dy"], (up * x["dx"] - drag * rise) / 100 - 9.81, step),
            "ends": np.stack(
                [
                    x["x"][0],
                    *(x["y"][0] - 1000, x["y"][-1] - 900),
                    *(x["dx"][0] - 13.23, x["dx"][-1] - 13.23),
                    *(x["dy"][0] + 1.288, x["dy"][-1] + 1.288),
                ]
            ),
        }

    ones = np.ones(count + 1)
    start = {
        "x": 13.23 * at,
        "y": 1000 - 100 * at,
        "dx": 13.23 * ones,
        "dy": -1.288 * ones,
        "lift": 0.7 * ones,
        "end": 1.0,
    }
    low = {"x": 0.0, "y": -INF, "dx": 0.0, "dy": -INF, "lift": 0.0, "end": 0.0}
    high = dict.fromkeys(start, INF) | {"lift": 1.4}
    return Problem(lambda x: -x["x"][-1], start, equal, None, (low, high))


class Collocation:
    """Polynomials on intervals that meet: `v` at their left ends, and `w`, their derivatives there.

    Parameters
    ----------
    count : int
        The number of intervals.
    end : float
        Of the last one.
    order : int
        How many points each has.
    """

    def __init__(self, count: int, end: float, order: int) -> None:
        self.step, self.count = end / count, count
        powers = np.arange(1, order + 1)
        self.scale = np.array([factorial(power) for power in powers], float)
        self.values = GAUSS[order][:, None] ** powers / self.scale
        self.slopes = GAUSS[order][:, None] ** (powers - 1) * powers / self.scale
        self.powers = powers

    def at_points(self, x: Any) -> tuple[Any, Any]:
        """Return the states and their slopes at all points: arrays (intervals, points, states)."""
        values = x["v"][:, None, :] + self.step * np.einsum("jk,iks->ijs", self.values, x["w"])
        return values, np.einsum("jk,iks->ijs", self.slopes, x["w"])

    def right(self, x: Any) -> Any:
        """Return the states at the right ends."""
        return x["v"] + self.step * np.einsum("k,iks->is", 1 / self.scale, x["w"])

    def at_times(self, x: Any, times: Any) -> Any:
        """Return the states at times."""
        interval = np.minimum(np.floor(times / self.step).astype(int), self.count - 1)
        within = (times / self.step - interval)[:, None] ** self.powers / self.scale
        return x["v"][interval] + self.step * np.einsum("jk,jks->js", within, x["w"][interval])


def fit(
    count: int, order: int, times: Any, data: Any, first: Any, guess: Any, rates: Any, number: int, start: Any
) -> Problem:
    """Rate constants of a reaction from measured concentrations."""
    grid = Collocation(count, times[-1], order)

    def misfit(x: Any) -> Any:
        return np.sum((grid.at_times(x, times) - data) ** 2)

    def equal(x: Any) -> Any:
        values, slopes = grid.at_points(x)
        wanted = rates(x["theta"], *[values[:, :, s] for s in range(values.shape[2])])
        return {
            "rates": slopes - np.stack(wanted, 2),
            "joints": grid.right(x)[:-1] - x["v"][1:],
            "first": x["v"][0] - first,
        }

    left = np.arange(count) * grid.step
    table = np.concatenate([np.reshape(guess, (1, -1)), start])
    v = table[np.searchsorted(times, left)] if start.size else np.full((count, len(guess)), guess)
    begin = {"theta": np.zeros(number), "v": v, "w": np.zeros((count, order, v.shape[1]))}
    return Problem(misfit, begin, equal, None, ({"theta": 0.0, "v": -INF, "w": -INF}, INF))


PINENE_TIMES = np.array([1230.0, 3060, 4920, 7800, 10680, 15030, 22620, 36420])
PINENE = np.array(
    [
        [88.35, 7.3, 2.3, 0.4, 1.75],
        [76.4, 15.6, 4.5, 0.7, 2.8],
        [65.1, 23.1, 5.3, 1.1, 5.8],
        [50.4, 32.9, 6.0, 1.5, 9.3],
        [37.5, 42.7, 6.0, 1.9, 12.0],
        [25.9, 49.1, 5.9, 2.2, 17.0],
        [14.0, 57.4, 5.1, 2.6, 21.0],
        [4.5, 63.1, 3.8, 2.9, 25.7],
    ]
)


def pinene(count: int, scale: Any = 1.0) -> Problem:
    """The isomerisation of alpha-pinene."""

    def rates(t: Any, a: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
        return (
            -(t[0] + t[1]) * a,
            t[0] * a,
            t[1] * a - (t[2] + t[3]) * c + t[4] * e,
            t[2] * c,
            t[3] * c - t[4] * e,
        )

    first = np.array([100.0, 0, 0, 0, 0])
    return fit(count, 3, PINENE_TIMES, PINENE * scale, first, first, rates, 5, PINENE)


GAS_OIL = np.array(
    [
        *([1.0, 0], [0.8105, 0.2], [0.6208, 0.2886], [0.5258, 0.301], [0.4345, 0.3215], [0.3903, 0.3123]),
        *([0.3342, 0.2716], [0.3034, 0.2551], [0.2735, 0.2258], [0.2405, 0.1959], [0.2283, 0.1789]),
        *([0.2071, 0.1457], [0.1669, 0.1198], [0.153, 0.0909], [0.1339, 0.0719], [0.1265, 0.0561]),
        *([0.12, 0.046], [0.099, 0.028], [0.087, 0.019], [0.077, 0.014], [0.069, 0.01]),
    ]
)
GAS_OIL_TIMES = np.concatenate(
    [np.arange(0, 0.26, 0.025), np.arange(0.3, 0.56, 0.05), np.arange(0.65, 1, 0.1)]
)


def gas_oil(count: int, scale: Any = 1.0) -> Problem:
    """The catalytic cracking of gas oil."""

    def rates(t: Any, a: Any, b: Any) -> Any:
        return -(t[0] + t[2]) * a**2, t[0] * a**2 - t[1] * b

    first = np.array([1.0, 0])
    return fit(count, 4, GAS_OIL_TIMES, GAS_OIL * scale, first, first, rates, 3, GAS_OIL)


METHANOL = np.array(
    [
        *([1.0, 0, 0], [0.7085, 0.1621, 0.0811], [0.5971, 0.1855, 0.0965], [0.5537, 0.1989, 0.1198]),
        *([0.3684, 0.2845, 0.1535], [0.1712, 0.3491, 0.2097], [0.1198, 0.3098, 0.2628]),
        *([0.0747, 0.3576, 0.2467], [0.0529, 0.3347, 0.2884], [0.0415, 0.3388, 0.2757]),
        *([0.0261, 0.3557, 0.3167], [0.0208, 0.3483, 0.2954], [0.0085, 0.3836, 0.295]),
        *([0.0053, 0.3611, 0.2937], [0.0019, 0.3609, 0.2831], [0.0018, 0.3485, 0.2846]),
        [0.0006, 0.3698, 0.2899],
    ]
)
METHANOL_TIMES = np.array(
    [
        *(0.0, 0.05, 0.065, 0.08, 0.123, 0.233, 0.273, 0.354, 0.397, 0.418, 0.502, 0.553, 0.681, 0.75),
        *(0.916, 0.937, 1.122),
    ]
)


def methanol(count: int, scale: Any = 1.0) -> Problem:
    """Methanol to hydrocarbons. From states that are not the measured ones the last digits decide which local optimum is found."""

    def rates(t: Any, a: Any, b: Any, c: Any) -> Any:
        shared = t[0] * a / ((t[1] + t[4]) * a + b)
        return (
            -(2 * t[1] + t[2] + t[3]) * a + shared * b,
            shared * (t[1] * a - b) + t[2] * a,
            shared * (b + t[4] * a) + t[3] * a,
        )

    first = np.array([1.0, 0, 0])
    guess = np.full(3, 0.001)
    return fit(count, 3, METHANOL_TIMES, METHANOL * scale, first, guess, rates, 5, METHANOL[1:])


def catalyst(count: int, speed: Any = 10.0) -> Problem:
    """The mixing policy of two catalysts along a reactor."""
    grid = Collocation(count, 1.0, 3)

    def equal(x: Any) -> Any:
        values, slopes = grid.at_points(x)
        a, b, u = values[:, :, 0], values[:, :, 1], x["u"]
        rates = u * (speed * b - a), u * (a - speed * b) - (1 - u) * b
        return {
            "rates": slopes - np.stack(rates, 2),
            "joints": grid.right(x)[:-1] - x["v"][1:],
            "first": x["v"][0] - np.array([1.0, 0]),
        }

    v = np.zeros((count, 2)) + np.array([1.0, 0])
    start = {"u": np.zeros((count, 3)), "v": v, "w": np.zeros((count, 3, 2))}
    bounds = {"u": 0.0, "v": -INF, "w": -INF}, {"u": 1.0, "v": INF, "w": INF}
    return Problem(lambda x: np.sum(grid.right(x)[-1]) - 1, start, equal, None, bounds)


def inside(v: Any) -> Any:
    """Return values on a grid with zeros around."""
    return np.pad(v, 1)


def torsion(count: int, force: Any = 5.0) -> Problem:
    """The elastic-plastic torsion of a bar, by linear finite elements."""
    step = 1 / (count + 1)
    at = np.arange(1, count + 1)
    edge = np.minimum(at, count + 1 - at) * step
    distance = np.minimum(edge[:, None], edge)

    def energy(v: Any) -> Any:
        whole = inside(v)
        across, along = whole[1:] - whole[:-1], whole[:, 1:] - whole[:, :-1]
        return 0.5 * (np.sum(across**2) + np.sum(along**2)) - force * step**2 * np.sum(v)

    return Problem(energy, distance, bounds=(-distance, distance))


def bearing(count: int, eccentricity: Any = 0.1) -> Problem:
    """The pressure in a journal bearing, by linear finite elements."""
    dx, dy = 2 * np.pi / (count + 1), 20 / (count + 1)
    at = np.arange(count + 2) * dx

    def energy(v: Any) -> Any:
        whole = inside(v)
        width = (1 + eccentricity * np.cos(at)) ** 3
        left = ((width[:-1] + 2 * width[1:]) / 6)[:, None]
        right = ((width[1:] + width[:-1]) / 3)[
            :, None
        ]  # as in the model of COPSBenchmark.jl; the mean over the element is another one
        across = ((whole[1:] - whole[:-1]) / dx) ** 2
        along = ((whole[:, 1:] - whole[:, :-1]) / dy) ** 2
        bent = left * (across[:, :-1] + along[:-1]) + right * (across[:, 1:] + along[1:])
        load = eccentricity * np.sin(at[1:-1])[:, None] * v
        return dx * dy * (0.5 * np.sum(bent) - np.sum(load))

    start = np.maximum(np.sin(at[1:-1]), 0.0)[:, None] + np.zeros((count, count))
    return Problem(energy, start, bounds=(0.0, INF))


OPTIMA: dict[str, tuple[Callable[..., Problem], int, float]] = {
    "polygon": (polygon, 6, -0.674981),
    "electrons": (electrons, 25, 243.8128),
    "cam": (cam, 1000, -4.2791),
    "chain": (chain, 199, 5.06891),
    "steering": (steering, 200, 0.554577),
    "robot": (robot, 200, 9.14138),
    "rocket": (rocket, 400, -1.01283),
    "glider": (glider, 100, -1255.05),
    "pinene": (pinene, 100, 19.8721),
    "gas_oil": (gas_oil, 100, 5.2366e-3),
    "methanol": (methanol, 100, 9.02229e-3),
    "catalyst": (catalyst, 100, -0.0480556),
    "torsion": (torsion, 50, -0.418087),
    "bearing": (bearing, 50, -0.154820),
}
"""Problems with their sizes and optima: those of the tests of COPSBenchmark.jl, which match the COPS 3.0 report to 1e-4 (that of cam
not quite). The polygon with six corners is the hexagon; 25 electrons are Thomson's problem."""
