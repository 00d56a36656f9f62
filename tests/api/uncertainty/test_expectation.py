"""Derivatives of expectations are unbiased: within four standard errors of the exact ones, over independent estimates."""

import math
import warnings

import numpy as np
import pytest

import gradtape as gt
from gradtape.api.uncertainty.unrolled_loops import MOST_ITERATIONS
from gradtape.errors import ArgumentError, GradtapeWarning, NotDifferentiableError, UnsupportedFunctionError
from gradtape.trace.random.lanes import CENTRED
from tests.support.ways import expect

ROUNDS, SAMPLES = 12, 2000


def estimates(function, x, rng, rounds=ROUNDS, samples=SAMPLES):
    derivative = gt.value_and_grad(gt.expectation(function, samples, rng=rng))
    pairs = [derivative(x) for _ in range(rounds)]
    return np.array([value for value, _ in pairs]), np.array([slope for _, slope in pairs])


def assert_unbiased(found, exact):
    error = np.std(found, ddof=1, axis=0) / math.sqrt(len(found))
    assert np.all(np.abs(np.mean(found, axis=0) - exact) <= 4.0 * error + 1e-9), (
        np.mean(found),
        exact,
        error,
    )


def programs():
    """Yield programs of one parameter with exact expectations, as functions too."""

    def walk(p, rng):
        x = 0.0
        for _ in range(10):
            x = x + np.where(rng.random() < p, 1.0, -1.0)
        return x**2

    def pulled_back(p, rng):
        x = 0.0
        for _ in range(6):
            x = x + np.where(rng.random() < 1.0 / (1.0 + np.exp(0.5 * x - p)), 1.0, -1.0)
        return x

    def position(p):
        chance = {0: 1.0}
        for _ in range(6):
            after = dict.fromkeys(range(-7, 8), 0.0)
            for x, weight in chance.items():
                up = 1.0 / (1.0 + math.exp(0.5 * x - p))
                after[x + 1 if x < 7 else x] += weight * up
                after[x - 1 if x > -7 else x] += weight * (1.0 - up)
            chance = after
        return sum(x * weight for x, weight in chance.items())

    def picked(p, rng):
        return rng.choice(np.array([1.0, 5.0, 2.0]), p=np.stack([p, 0.5 - p / 2, 0.5 - p / 2]))

    def elements(p, rng):
        u = rng.random(5)
        return sum(1.0 * (u[i] < p) for i in range(5)) ** 2

    def read_twice(p, rng):
        u = rng.random()
        return 1.0 * (u < p) + 10.0 * (u < p**2) + 3.0 * u * (u < p)

    def thinned(p, rng):
        return rng.binomial(rng.poisson(3.0 * p), p) * 1.0

    def barrier(p, rng):
        z = rng.normal(p, 2.0)
        return np.where(z > 1.0, z**2, 0.0)

    def falling(p, rng):
        z = rng.normal()
        return np.where(1.5 - p * z < 1.0, z, 0.0)

    def tail(t, s=2.0):
        return 0.5 * math.erfc(t / s / math.sqrt(2.0))

    def bell(t):
        return math.exp(-0.5 * t * t) / math.sqrt(2.0 * math.pi)

    def second_moment(p):
        a = (1.0 - p) / 2.0  # E[(p + 2z)**2; z > a]
        return p * p * tail(a, 1.0) + 4.0 * p * bell(a) + 4.0 * (a * bell(a) + tail(a, 1.0))

    return {
        "where": (lambda p, rng: np.where(rng.random() < p, 3.0, 1.0), lambda p: 1.0 + 2.0 * p),
        "other side": (lambda p, rng: 1.0 * (p > rng.random()), lambda p: p),
        "walk": (walk, lambda p: 40.0 * p * (1 - p) + 100.0 * (2 * p - 1) ** 2),
        "pulled back": (pulled_back, position),
        "poisson": (lambda p, rng: rng.poisson(p) ** 2 * 1.0, lambda p: p + p**2),
        "binomial": (lambda p, rng: rng.binomial(10, p) ** 2 * 1.0, lambda p: 10 * p * (1 - p) + 100 * p**2),
        "geometric": (
            lambda p, rng: np.minimum(rng.geometric(p), 30) * 1.0,
            lambda p: (1 - (1 - p) ** 30) / p,
        ),
        "choice": (picked, lambda p: p + 3.5 * (1 - p)),
        "searchsorted": (
            lambda p, rng: np.searchsorted(np.stack([p**2, p]), rng.random()) ** 2 * 1.0,
            lambda p: (p - p**2) + 4.0 * (1.0 - p),
        ),
        "array": (lambda p, rng: np.sum(rng.random(5) < p) ** 2 * 1.0, lambda p: 5 * p * (1 - p) + 25 * p**2),
        "elements": (elements, lambda p: 5 * p * (1 - p) + 25 * p**2),
        "read twice": (read_twice, lambda p: p + 10.0 * p**2 + 1.5 * p**2),
        "thinned": (thinned, lambda p: 3.0 * p**2),
        "barrier": (barrier, second_moment),
        "falling": (falling, lambda p: bell(0.5 / p)),
        "exponential": (lambda p, rng: 1.0 * (rng.exponential(p) > 1.0), lambda p: math.exp(-1.0 / p)),
        "path and chance": (
            lambda p, rng: np.where(rng.random() < p, p**2, np.sin(p)),
            lambda p: p**3 + (1 - p) * math.sin(p),
        ),
    }


NAMES = list(programs())


@pytest.mark.parametrize("name", NAMES)
def test_derivatives_are_unbiased(name):
    function, exact = programs()[name]
    p, h = 0.4, 1e-5
    values, slopes = estimates(function, p, NAMES.index(name))
    assert_unbiased(values, exact(p))
    assert_unbiased(slopes, (exact(p + h) - exact(p - h)) / (2 * h))


def bootstrap_filter(draw):
    """Return the likelihood of a filter of five particles with resampling, and its expectation, which the Kalman filter computes."""
    seen = (0.4, -0.6)

    def sample(p, rng):
        x, total = np.zeros(5), 1.0
        for y in seen:
            x = p * x + rng.standard_normal(5)
            weights = np.exp(-0.5 * (y - x) ** 2)
            total = total * np.mean(weights)
            x = draw(x, weights, rng)
        return total

    def exact(p):
        mean, variance, total = 0.0, 0.0, 1.0
        for y in seen:
            mean, variance = p * mean, p * p * variance + 1.0
            total *= math.exp(-0.5 * (y - mean) ** 2 / (variance + 1.0)) / math.sqrt(variance + 1.0)
            gain = variance / (variance + 1.0)
            mean, variance = mean + gain * (y - mean), (1.0 - gain) * variance
        return total

    return sample, exact


RESAMPLING = {
    "searchsorted": lambda x, w, rng: np.take(x, np.searchsorted(np.cumsum(w) / np.sum(w), rng.random(5))),
    "choice": lambda x, w, rng: x[rng.choice(5, size=5, p=w / np.sum(w))],
    "choice of elements": lambda x, w, rng: rng.choice(x, size=5, p=w / np.sum(w)),
}


@pytest.mark.parametrize("name", RESAMPLING)
def test_martingales_take_the_variance_out_of_resampling(name):
    sample, exact = bootstrap_filter(RESAMPLING[name])
    p, h = 0.8, 1e-5
    values, slopes = estimates(sample, p, 5)
    assert_unbiased(values, exact(p))
    assert_unbiased(slopes, (exact(p + h) - exact(p - h)) / (2 * h))
    # By differences alone it is 0.0023, by these 0.0011.
    assert np.std(slopes, ddof=1) < 0.0017


def test_what_is_resampled_may_be_infinite():
    def sample(p, rng):
        x = np.stack([p * rng.standard_normal(), 2.0 * p, -np.inf])
        k = rng.choice(3, p=np.stack([p, 1.0 - p, 0.0]))
        return np.where(k == 2, 0.0, x[k])

    mean = gt.expectation(sample, 4000, rng=0)
    assert np.isclose(gt.grad(mean)(0.5), 0.0, atol=0.1)  # of 2 p (1 - p)


def test_functions_of_random_numbers_that_serve_as_martingales_have_the_mean_zero():
    rng = np.random.default_rng(0)
    for name, functions in CENTRED.items():
        values = functions(getattr(rng, name)(200_000))
        for value in values:
            assert abs(np.mean(value)) < 5.0 * np.std(value) / math.sqrt(value.size)
        products = np.corrcoef(values)
        assert np.allclose(products, np.eye(len(values)), atol=0.05)


def test_the_derivative_of_a_linear_result_of_comparisons_has_no_variance():
    mean = gt.expectation(lambda p, rng: np.where(rng.random() < p, 3.0, 1.0), 100, rng=0)
    assert np.isclose(gt.grad(mean)(0.3), 2.0, rtol=1e-12)
    _, tangent = gt.jvp(mean, (0.3,), (1.0,))
    assert np.isclose(tangent, 2.0, rtol=1e-12)
    with gt.GradientTape() as tape:
        p = gt.constant(0.3)
        tape.watch(p)
        y = mean(p)
    assert np.isclose(tape.gradient(y, p), 2.0, rtol=1e-12)


def test_nested_arguments_results_and_generators_as_arguments():
    def game(rates, rng):
        shots = rng.poisson(rates["shots"])
        return {"goals": rng.binomial(shots, rates["skill"]), "both": np.stack([shots * 1.0, rates["skill"]])}

    mean = gt.expectation(game, 4000)
    rates = {"shots": 5.0, "skill": 0.25}
    found = mean(rates, np.random.default_rng(0))
    assert np.allclose(found["goals"], 1.25, atol=0.1) and found["both"].shape == (2,)
    slopes = gt.jacobian(mean)(rates, np.random.default_rng(1))
    assert np.isclose(slopes["goals"]["shots"], 0.25, atol=0.05)
    assert np.isclose(slopes["goals"]["skill"], 5.0, atol=0.6)
    assert np.allclose(slopes["both"]["shots"], [1.0, 0.0], atol=0.06)
    assert np.allclose(slopes["both"]["skill"], [0.0, 1.0], atol=1e-6)


def test_samples_are_independent_and_new_in_each_call():
    mean = gt.expectation(lambda s, rng: s * rng.normal() ** 2, 5000, rng=0)
    first, second = mean(1.0), mean(1.0)
    assert first != second
    assert abs(first - 1.0) < 0.15 and abs(second - 1.0) < 0.15
    assert gt.expectation(lambda x, rng: rng.permutation(3)[0] + x, 3000, rng=1)(0.0) == pytest.approx(
        1.0, abs=0.1
    )
    gammas = gt.expectation(lambda a, rng: rng.standard_gamma(a), 5000, rng=2)
    assert gammas(2.0) == pytest.approx(2.0, abs=0.15)
    assert gt.grad(gammas)(2.0) == pytest.approx(1.0, abs=0.1)


def test_no_warning_inside_and_a_warning_outside_which_names_the_remedy():
    rng = np.random.default_rng(0)

    def gain(p, rng):
        return np.mean(np.where(rng.random(10) < p, 3.0, 1.0))

    gt.grad(gt.expectation(gain, 100))(0.3, rng)  # warnings are errors
    with pytest.warns(GradtapeWarning, match=r"gt\.expectation"):
        gt.grad(gain)(0.3, rng)


UNSEEN = {
    "sine": lambda p, rng: np.where(np.sin(9.0 * rng.normal()) < p, 1.0, 0.0),
    "one of two": lambda p, rng: np.where((rng.random() < p) & (np.sin(9.0 * rng.normal()) < p), 1.0, 0.0),
    "gamma": lambda p, rng: 1.0 * (rng.gamma(p) > 1.0),
    "floor": lambda p, rng: np.floor(rng.random() + p),
    "integer": lambda p, rng: (rng.random() + p).astype(int) * 1.0,
    "sign": lambda p, rng: np.sign(rng.random() - p),
    "step": lambda p, rng: np.heaviside(rng.random() - p, 0.5),
    "remainder": lambda p, rng: (rng.random() + p) % 1.0,
    "quotient": lambda p, rng: (rng.random() + p) // 0.5,
    "largest": lambda p, rng: np.argmax(np.stack([rng.random(), p])) * 1.0,
    "order": lambda p, rng: np.argsort(np.stack([rng.random(), p]))[0] * 1.0,
    "loop": lambda p, rng: gt.scan(
        lambda c, u: (c + np.where(u < p, 1.0, 0.0), None), 0.0 * p, rng.random(MOST_ITERATIONS + 1)
    )[0],
    "carried": lambda p, rng: gt.scan(
        lambda c, u: (c * p + u + np.where(c > 1.0, 1.0, 0.0), None), 0.0 * p, rng.random(MOST_ITERATIONS + 1)
    )[0],
    "multinomial": lambda p, rng: rng.multinomial(5, np.stack([p, 1.0 - p]))[0] * 1.0,
    "hypergeometric": lambda p, rng: rng.hypergeometric(10.0 * p, 3, 2) * 1.0,
    "zipf": lambda p, rng: rng.zipf(p + 4.0) * 1.0,
    "logseries": lambda p, rng: rng.logseries(p) * 1.0,
    "negative binomial": lambda p, rng: rng.negative_binomial(3, p) * 1.0,
    "integers": lambda p, rng: rng.integers(0, 10.0 * p) * 1.0,
}


@pytest.mark.parametrize("name", UNSEEN)
def test_a_derivative_that_would_lack_a_decision_is_an_error(name):
    function = UNSEEN[name]
    mean = gt.expectation(function, 50, rng=0)
    assert np.isfinite(mean(0.3))  # values are means as everywhere
    line = f"{function.__code__.co_firstlineno}"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(NotDifferentiableError, match=r"gt\.expectation cannot differentiate") as info:
            gt.grad(mean)(0.3)
        with pytest.raises(NotDifferentiableError, match=r"gt\.expectation cannot differentiate"):
            gt.jvp(mean, (0.3,), (1.0,))
    assert not caught
    assert "test_expectation.py" in str(info.value) and (
        name in ("loop", "carried") or line in str(info.value)
    )


@pytest.mark.parametrize(
    ("function", "slope"),
    [
        (lambda p, rng: np.sort(np.stack([rng.random(), p]))[0], 0.7),
        (lambda p, rng: np.median(p * rng.random(3)), 0.5),
        (lambda p, rng: np.interp(p * rng.random() ** 2, [0.0, 0.5, 1.0], [0.0, 2.0, 3.0]), 4.0 / 3.0),
        (lambda p, rng: np.where(rng.poisson(2.0) > p, 3.0, 1.0) * p, 3.0 - 2.0 * math.exp(-2.0)),
        (lambda p, rng: p * np.floor(3.0 * rng.random()), 1.0),
        (lambda p, rng: np.floor(rng.random() + gt.stop_gradient(p)) + p, 1.0),
        (
            lambda p, rng: gt.scan(
                lambda c, u: (c + np.where(u < 0.5, p, 0.0), None), 0.0 * p, rng.random(3)
            )[0],
            1.5,
        ),
        (lambda p, rng: rng.choice(np.stack([p, 2.0 * p, 3.0 * p])), 2.0),
        (lambda p, rng: rng.permutation(np.stack([p, 2.0 * p, 3.0 * p]))[0], 2.0),
    ],
)
def test_what_does_not_jump_with_a_parameter_is_differentiated_along_the_path(function, slope):
    assert np.isclose(gt.grad(gt.expectation(function, 20_000, rng=0))(0.3), slope, atol=0.04)


def test_errors():
    rng = np.random.default_rng(0)
    for samples in (0, -1, 2.5, True):
        with pytest.raises(ArgumentError, match="samples"):
            gt.expectation(lambda p: p, samples)
    mean = gt.expectation(lambda p, rng: np.where(rng.random() < p, 3.0, 1.0) * p, 100, rng=0)
    with pytest.raises(NotDifferentiableError, match="second derivatives"):
        gt.grad(gt.grad(mean))(0.3)
    with pytest.raises(UnsupportedFunctionError, match="not its argument"):
        gt.expectation(lambda p: rng.random() * p, 100)(0.3)


def test_old_generators_are_refused_by_name() -> None:
    draw = gt.expectation(lambda p, rng: p * rng.normal(), 10)
    expect(
        UnsupportedFunctionError, lambda: draw(0.3, np.random.RandomState(0)), "RandomState", "default_rng"
    )


def test_thresholds_and_parameters_at_the_ends_of_their_range():
    def slope(function, p):
        return gt.grad(gt.expectation(function, 500, rng=0))(p)

    height = 1.0 / math.sqrt(2.0 * math.pi)
    assert np.isclose(slope(lambda p, rng: 1.0 * (rng.normal() < p), 0.0), height)
    for p in (0.0, 1.0):  # the derivative inside of the range
        assert np.isclose(slope(lambda p, rng: 3.0 * (rng.random() < p), p), 3.0)
        assert np.isclose(slope(lambda p, rng: rng.binomial(5, p) * 1.0, p), 5.0)
    assert np.isclose(slope(lambda p, rng: rng.poisson(p) * 1.0, 0.0), 1.0)
    assert np.isclose(slope(lambda p, rng: (rng.geometric(p) - 1.0) * 1.0, 1.0), -1.0)


def test_outcomes_of_probability_zero_are_passed_over():
    def pick(p, rng):
        return rng.choice(np.array([1.0, 7.0, 7.0, 3.0]), p=np.stack([p, 0.0 * p, 0.0 * p, 1.0 - p]))

    _, slopes = estimates(pick, 0.3, 1)
    assert_unbiased(slopes, -2.0)
    assert np.max(np.abs(slopes + 2.0)) < 0.5


def test_what_cannot_happen_is_not_part_of_the_derivative():
    def f(p, rng):
        is_low = rng.random() < p + 1.0
        return p * np.where(is_low, 2.0, np.log(np.where(is_low, 1.0, -1.0)))

    assert np.isclose(gt.grad(gt.expectation(f, 100, rng=0))(0.5), 2.0, rtol=1e-12)


class Tree:
    """Stands for a generator in a program of `flip`, of which all outcomes are visited, with their probabilities."""

    def __init__(self, decided):
        self.decided, self.chance, self.place = decided, 1.0, 0

    def flips(self, p):
        p = np.asarray(p, float)
        found = np.zeros(p.shape, bool)
        for index in np.ndindex(p.shape):
            if self.place == len(self.decided):
                self.decided.append(True)
            found[index] = self.decided[self.place]
            self.chance *= p[index] if found[index] else 1.0 - p[index]
            self.place += 1
        return found[()]


def flip(rng, p):
    return rng.flips(p) if isinstance(rng, Tree) else rng.random(np.shape(p) or None) < p


def exactly(function, p):
    """Return the expectation: the sum over all outcomes."""
    total, decided = 0.0, []
    while True:
        tree = Tree(decided)
        with np.errstate(all="ignore"):
            total = total + function(p, tree) * tree.chance
        while decided and not decided[-1]:
            decided.pop()
        if not decided:
            return total
        decided[-1] = False


def games():
    """Yield functions of a parameter whose decisions are used in all sorts of ways."""

    def sums_of_truth_values(p, rng):
        hits = flip(rng, p * np.array([0.5, 1.0, 1.5]))
        return np.sum(hits) ** 2 * 1.0 + np.where(np.any(hits), p, 2.0)

    def counts(p, rng):
        n = 0
        for k in range(6):
            n = n + np.where(flip(rng, p), 1, 0) * (k + 1)
        return np.sin(0.3 * n)

    def logic(p, rng):
        a, b, c = flip(rng, p), flip(rng, p**2), flip(rng, 0.5 + 0.1 * p)
        return np.where((a & ~b) | c, 3.0 * p, np.where(a ^ b, 1.0, -2.0))

    def levels(p, rng):
        k = np.where(flip(rng, p), 1, 0) + np.where(flip(rng, p), 2, 0)
        return np.take(np.array([1.0, -1.0, 4.0, 2.0]) * p, k)

    def matrices(p, rng):
        step = np.array([[0.9, 0.2], [0.1, 0.7]])
        x = np.array([1.0, 0.0])
        for _ in range(3):
            on = flip(rng, np.exp(-p * np.abs(x)))
            x = step @ np.where(on, x + 1.0, 0.5 * x)
        return np.sum(x**2)

    def guarded(p, rng):
        x = 1.0
        for _ in range(4):
            ok = flip(rng, p)
            x = np.where(ok, x / np.where(ok, 2.0, 0.0), x + 1.0)
        return np.log(x)

    def rounded(p, rng):
        s = np.sum(np.where(flip(rng, np.full(4, p)), 1.0, 0.0))
        return np.floor(s / 2.0) + np.where(s > 2.5, 5.0, 0.0)

    def axes(p, rng):
        table = flip(rng, np.broadcast_to(p, (2, 3)))
        rows = np.sum(table, axis=1)
        return np.max(rows * np.array([1.0, 2.0])) + np.sum(table[:, 0] * 3)

    def alone(p, rng):
        return np.where(flip(rng, p), 1e300, 1e-300) * 1e-300

    return {function.__name__: function for function in list(locals().values()) if callable(function)}


@pytest.mark.parametrize("name", games())
def test_all_uses_of_decisions_against_the_sum_over_all_outcomes(name):
    function, p, h = games()[name], 0.45, 1e-5
    exact = (exactly(function, p + h) - exactly(function, p - h)) / (2 * h)
    values, slopes = estimates(function, p, 3)
    assert_unbiased(values, exactly(function, p))
    assert_unbiased(slopes, exact)


def test_the_variance_is_small_where_results_are_nearly_linear_in_decisions():
    def walk(p, rng):
        x = 0.0
        for _ in range(12):
            x = x + np.where(rng.random() < p, 1.0, -1.0)
        return x

    _, slopes = estimates(walk, 0.4, 0, rounds=3, samples=50)
    np.testing.assert_allclose(slopes, 24.0, rtol=1e-12)
    _, slopes = estimates(
        lambda p, rng: rng.poisson(p) + 2.0 * rng.binomial(4, p) * p, 0.4, 0, rounds=3, samples=50
    )
    assert np.std(slopes) < 1.5


def test_several_results_have_control_variates_of_their_own():
    def f(p, rng):
        a = [np.where(rng.random() < p, 1.0, 0.0) for _ in range(4)]
        return {"sum": a[0] + a[1] + a[2] + a[3], "both": np.stack([a[0] * a[1], a[2]])}

    slopes = gt.jacobian(gt.expectation(f, 20_000, rng=0))(0.3)
    np.testing.assert_allclose(slopes["sum"], 4.0, rtol=1e-12)
    np.testing.assert_allclose(slopes["both"], [0.6, 1.0], atol=0.08)
    many = gt.jacobian(gt.expectation(lambda p, rng: 1.0 * (rng.random(20) < p), 20_000, rng=0))(0.3)
    np.testing.assert_allclose(many, np.ones(20), atol=0.4)


def pulled_walk(p, rng):
    x = 0.0
    for _ in range(8):
        x = x + np.where(rng.random() < 1.0 / (1.0 + np.exp(0.4 * x - p)), 1.0, -1.0)
    return x**2


def test_the_variance_is_a_part_of_the_score_functions():
    samples, rounds, p = 2000, 60, 0.3
    _, found = estimates(pulled_walk, p, np.random.default_rng(3), rounds, samples)
    rng = np.random.default_rng(4)
    x, score = np.zeros((rounds, samples)), np.zeros((rounds, samples))
    for _ in range(8):
        chance = 1.0 / (1.0 + np.exp(0.4 * x - p))
        is_up = rng.random(x.shape) < chance
        score += np.where(is_up, 1.0 - chance, -chance)
        x += np.where(is_up, 1.0, -1.0)
    others = (np.sum(x**2, 1, keepdims=True) - x**2) / (samples - 1)
    scored = np.mean((x**2 - others) * score, axis=1)
    assert np.var(found) < 0.05 * np.var(scored)  # 0.01, with an error of a fifth


def epidemic(rate, rng, agents=5, steps=3):
    sick = np.where(np.arange(agents) == 0, 1.0, 0.0)
    well = 1.0 - sick
    for _ in range(steps):
        caught = well * np.where(rng.random(agents) < 1.0 - np.exp(-rate * np.sum(sick) / agents), 1.0, 0.0)
        healed = sick * np.where(rng.random(agents) < 0.3, 1.0, 0.0)
        well, sick = well - caught, sick + caught - healed
    return agents - np.sum(well)


def test_outcomes_of_one_comparison_that_matter_together_are_fitted_together():
    samples, rounds, rate = 6000, 40, 1.2
    _, found = estimates(epidemic, rate, np.random.default_rng(5), rounds, samples)
    rng = np.random.default_rng(6)
    sick = np.zeros((rounds, samples, 5))
    sick[..., 0] = 1.0
    well, score = 1.0 - sick, np.zeros((rounds, samples))
    for _ in range(3):
        pressure = np.mean(sick, -1, keepdims=True)
        chance = -np.expm1(-rate * pressure)
        hit = rng.random(sick.shape) < chance
        slope = pressure * (1.0 - chance) / np.where(chance > 0.0, chance, 1.0)
        score += np.sum(well * np.where(hit, slope, -pressure), -1)
        caught, healed = well * hit, sick * (rng.random(sick.shape) < 0.3)
        well, sick = well - caught, sick + caught - healed
    result = 5.0 - np.sum(well, -1)
    others = (np.sum(result, 1, keepdims=True) - result) / (samples - 1)
    scored = np.mean((result - others) * score, axis=1)
    assert np.var(found) < 0.14 * np.var(scored)
    assert_unbiased(found, np.mean(scored))


def test_weights_of_samples_are_those_of_all_transforms():
    def mean(p):
        return gt.expectation(lambda q, rng: pulled_walk(q, rng) + q[1] ** 2, 600)(
            p, np.random.default_rng(2)
        )

    def pulled_walk(q, rng):
        x = 0.0
        for _ in range(3):
            x = x + np.where(rng.random() < 1.0 / (1.0 + np.exp(0.4 * x - q[0])), q[1], -1.0)
        return x**2

    p = np.array([0.3, 1.2])
    slopes = gt.grad(mean)(p)
    np.testing.assert_allclose(gt.jacobian(mean)(p), slopes, rtol=1e-12)
    directions = [gt.jvp(mean, (p,), (each,))[1] for each in np.eye(2)]
    np.testing.assert_allclose(directions, slopes, rtol=1e-12)
    with gt.GradientTape() as tape:
        watched = tape.watch(p)
        y = mean(watched)
    np.testing.assert_allclose(tape.gradient(y, watched), slopes, rtol=1e-12)


def test_few_samples_to_which_estimates_are_fitted_leave_no_bias():
    def squared(p, rng):
        first = np.where(rng.random() < p, 2.0, 0.0)
        return (first + np.where(rng.random() < p + 0.1 * first, 1.0, 0.0)) ** 2

    def exact(p):
        first, second = p, [p, p + 0.2]
        return sum(
            chance * (more * (2 * k + 1) ** 2 + (1 - more) * (2 * k) ** 2)
            for k, (chance, more) in enumerate(zip([1 - first, first], second, strict=True))
        )

    slope = (exact(0.3 + 1e-6) - exact(0.3 - 1e-6)) / 2e-6
    for samples in (2, 3, 140):  # from 100 on the score function is part of the estimate
        _, found = estimates(squared, 0.3, np.random.default_rng(samples), 1000, samples)
        assert_unbiased(found, slope)


def test_what_happens_rarely_is_not_left_to_the_score_function():
    def rare(p, rng):
        often = np.where(rng.random() < 0.5 + p, 1.0, 0.0)
        return often + np.where(rng.random() < p, 1e3, 0.0)

    _, found = estimates(rare, 1e-4, np.random.default_rng(5), 10, 400)
    assert np.all(np.abs(found - 1001.0) < 100.0)


def test_parameters_that_act_in_opposite_directions():
    def queue(x, rng):
        length = waited = 0.0
        for _ in range(5):
            length = length + np.where(rng.random() < x[0], 1.0, 0.0)
            length = np.where(rng.random() > 1.0 - x[1], np.maximum(length - 1.0, 0.0), length)
            waited = waited + length
        return np.stack([waited, length])

    def exact(x):
        chance, waited = np.eye(7)[0], 0.0
        for _ in range(5):
            chance = (1 - x[0]) * chance + x[0] * np.concatenate([[0.0], chance[:-1]])
            served = np.concatenate([[chance[0] + chance[1]], chance[2:], [0.0]])
            chance = (1 - x[1]) * chance + x[1] * served
            waited += np.sum(np.arange(7) * chance)
        return np.array([waited, np.sum(np.arange(7) * chance)])

    x = np.array([0.4, 0.55])
    slopes = np.stack([(exact(x + h) - exact(x - h)) / 2e-6 for h in 1e-6 * np.eye(2)], axis=1)
    jacobian = gt.jacobian(gt.expectation(queue, 2000, rng=np.random.default_rng(6)))
    assert_unbiased(np.array([jacobian(x) for _ in range(12)]), slopes)


@pytest.mark.parametrize("rng", ["seed", -1, 0.5])
def test_what_is_no_seed_is_refused(rng):
    with pytest.raises(ArgumentError, match="rng is"):
        gt.expectation(lambda x, rng: x, rng=rng)


@pytest.mark.parametrize(
    "function",
    [
        lambda p, rng: (1.0 * (rng.random() < p) + 1.0 * (rng.random() < p)) ** 2,
        lambda p, rng: rng.poisson(p) ** 2,
        lambda p, rng: p * (rng.random() < p),
        lambda p, rng: np.where(rng.normal() < p, 1.0, rng.random()),
    ],
)
def test_second_derivatives_are_refused_also_where_the_change_is_a_constant(function):
    mean = gt.expectation(function, 10, rng=0)
    for second in (gt.grad(gt.grad(mean)), gt.hessian(mean), lambda p: gt.jvp(gt.grad(mean), (p,), (1.0,))):
        expect(
            NotDifferentiableError,
            lambda second=second: second(0.4),
            "no second derivatives where chance decides",
            "gt.stop_gradient(p)",
        )
    assert np.isfinite(gt.grad(mean)(0.4))
    smooth = gt.expectation(lambda p, rng: p**3 * rng.random(), 10, rng=0)
    assert gt.hessian(smooth)(0.4) > 0.0


def martingale_games():
    """Yield functions whose states, masks and orders of draws are those that martingales could get wrong."""
    flips = 4

    def drawn_before(p, rng):
        hits = rng.random(flips) if not isinstance(rng, Tree) else None
        x = 0.0
        for k in range(flips):
            chance = 1.0 / (1.0 + np.exp(0.5 * x - p))
            up = rng.flips(chance) if hits is None else hits[k] < chance
            x = x + np.where(up, 1.0, -1.0) * (1.0 + 0.2 * x)
        return x**2

    def last_drawn_first(p, rng):
        u, v = (rng.random(), rng.random()) if not isinstance(rng, Tree) else (None, None)
        first = rng.flips(p) if v is None else v < p
        chance = np.where(first, 0.2 + 0.5 * p, 0.9 - p)
        second = rng.flips(chance) if u is None else u < chance
        third = flip(rng, 0.5)
        return np.where(first, 1.0, 3.0) * np.where(second, 5.0, -1.0) + np.where(
            third & second, 4.0 * p, 1.0
        )

    def infected(p, rng):
        sick = np.array([1.0, 0.0, 0.0])
        well = 1.0 - sick
        for _ in range(2):
            caught = well * np.where(flip(rng, (1.0 - np.exp(-p * np.sum(sick))) * np.ones(3)), 1.0, 0.0)
            healed = sick * np.where(flip(rng, 0.3 * np.ones(3)), 1.0, 0.0)
            well, sick = well - caught, sick + caught - healed
        return (3.0 - np.sum(well)) ** 2

    def masked(p, rng):
        open_, total = True, 0.0
        for k in range(4):
            hit = flip(rng, p + 0.05 * k)
            total = total + np.where(hit & open_, 2.0 + k, total * 0.0)
            open_ = open_ & ~(flip(rng, 0.3) & hit) | (total > 6.5)
        return total**2

    def added_after(p, rng):
        first, second = flip(rng, p), flip(rng, 1.0 - p)
        product = np.where(first, 1.0, -1.0) * np.where(second, 3.0, 0.0)
        return (product + np.where(first | second, p, 2.0)) ** 2

    return {function.__name__: function for function in list(locals().values()) if callable(function)}


@pytest.mark.parametrize("name", martingale_games())
def test_martingales_leave_no_bias_whatever_the_order_of_draws(name):
    function, p, h = martingale_games()[name], 0.35, 1e-5
    exact = (exactly(function, p + h) - exactly(function, p - h)) / (2 * h)
    _, slopes = estimates(function, p, np.random.default_rng(7), rounds=200, samples=700)
    assert_unbiased(slopes, exact)


def test_martingales_leave_no_bias_beside_draws_that_depend_on_decisions():
    def f(p, rng):
        first = np.where(rng.random() < p, 1.0, 0.0)
        number = rng.poisson(1.0 + first) * 1.0
        second = np.where(rng.random() < 0.2 + 0.1 * np.minimum(number, 5.0) * p, 3.0, 0.0)
        return (first + second) * (1.0 + number)

    def exact(p):
        total = 0.0
        for first, chance in ((0.0, 1.0 - p), (1.0, p)):
            for k in range(40):
                weight = chance * math.exp(-1.0 - first) * (1.0 + first) ** k / math.factorial(k)
                total += weight * (first + 3.0 * (0.2 + 0.1 * min(k, 5) * p)) * (1.0 + k)
        return total

    _, slopes = estimates(f, 0.4, np.random.default_rng(8), rounds=200, samples=700)
    assert_unbiased(slopes, (exact(0.4 + 1e-5) - exact(0.4 - 1e-5)) / 2e-5)


def test_captured_numbers_decide_as_well():
    def mean_of(q):
        def f(p, rng):
            first = np.where(rng.random() < q, 1.0, 0.0)
            return (first + np.where(rng.random() < p, 2.0, 0.0)) ** 2

        return gt.expectation(f, 1000, rng=np.random.default_rng(9))

    slopes = np.array([gt.grad(mean_of(0.3))(0.6)])
    np.testing.assert_allclose(slopes, 4.0 + 4.0 * 0.3, rtol=0.05)
    outer = gt.grad(lambda q: gt.value_and_grad(mean_of(q))(0.6)[0])(0.3)
    np.testing.assert_allclose(outer, 1.0 + 4.0 * 0.6, rtol=0.15)


def test_decisions_that_cannot_matter_add_no_variance():
    def spread(p, rng):
        well, caught = np.ones(4), 0.0
        for _ in range(4):
            hits = well * np.where(rng.random(4) < p, 1.0, 0.0)
            well, caught = well - hits, caught + np.sum(hits)
        return caught

    exact = 4.0 * 4.0 * (1.0 - 0.6) ** 3
    _, slopes = estimates(spread, 0.6, np.random.default_rng(10), rounds=20, samples=4000)
    assert_unbiased(slopes, exact)
    # The score function, of those who are well, has the variance 9 a sample.
    assert np.var(slopes, ddof=1) < 0.3 * 9.0 / 4000


def _scanned(p, rng):
    return gt.scan(lambda c, u: (c + np.where(u < p, 1.0, 0.0), None), 0.0 * p, rng.random(3))[0]


def _counted(p, rng):
    z = rng.random(3)
    return gt.fori_loop(0, 3, lambda i, c: c + np.where(z[i] < p, 1.0, 0.0), 0.0)


def _backwards(p, rng):
    return np.sum(gt.scan(lambda c, u: (c, np.where(u < p, 1.0, 0.0)), 0.0, rng.random(3), reverse=True)[1])


def _looped(p, rng):
    count = 0.0 * p
    for u in rng.random(3):
        count = count + np.where(u < p, 1.0, 0.0)
    return count


def _nested(p, rng):
    z = rng.random((3, 2))

    def row(i, c):
        return gt.scan(lambda c, u: (c + np.where(u < p, 0.5, 0.0), None), c, z[i])[0]

    return gt.fori_loop(0, 3, row, 0.0)


@pytest.mark.parametrize("function", [_scanned, _counted, _backwards, _looped, _nested])
def test_decisions_in_bodies_of_loops_are_those_of_each_iteration(function):
    np.testing.assert_allclose(gt.grad(gt.expectation(function, 50, rng=0))(0.4), 3.0, rtol=1e-12)


def test_what_a_loop_carries_decides():
    def function(p, rng):
        def step(c, u):
            return c * p + u + np.where(c > 1.0, 1.0, 0.0), None

        return gt.scan(step, 0.0 * p, rng.random(3))[0]

    # c is u, p u + v, and then p (p u + v) + w + 1 with the probability p / 2 of p u + v > 1.
    _, slopes = estimates(function, 0.3, np.random.default_rng(13))
    assert_unbiased(slopes, 0.5 * (2.0 * 0.3 + 1.0) + 0.5)


def test_integers_may_depend_on_decisions_in_bodies_of_loops():
    def function(p, rng):
        z = rng.random(4)
        count = gt.fori_loop(0, 4, lambda i, c: c + np.where(z[i] < p, 1.0, 0.0), 0.0)
        return rng.poisson(0.5 + count) * rng.random()

    _, slopes = estimates(function, 0.3, np.random.default_rng(11))
    assert_unbiased(slopes, 2.0)


def test_remedies_for_decisions_in_long_loops():
    def function(p, rng, length):
        z = rng.random(length)
        return gt.fori_loop(0, length, lambda i, c: c + np.where(z[i] < p, 1.0, 0.0), 0.0)

    def in_python(p, rng):
        return sum(np.where(u < p, 1.0, 0.0) for u in rng.random(MOST_ITERATIONS + 1))

    def drawn_in_body(p, rng):
        return gt.fori_loop(0, 3, lambda i, c: c + np.where(rng.random() < p, 1.0, 0.0), 0.0)

    def slope(function):
        return gt.grad(gt.expectation(function, 20, rng=0))(0.4)

    expect(
        NotDifferentiableError,
        lambda: slope(lambda p, rng: function(p, rng, MOST_ITERATIONS + 1)),
        "write a Python loop",
    )
    np.testing.assert_allclose(slope(in_python), MOST_ITERATIONS + 1, rtol=1e-12)
    expect(UnsupportedFunctionError, lambda: slope(drawn_in_body), "draw before the loop, z = rng.random(n)")
    np.testing.assert_allclose(slope(lambda p, rng: function(p, rng, 3)), 3.0, rtol=1e-12)


def test_the_remedy_for_second_derivatives_is_unbiased():
    def function(p, rng):
        count = log_prob = 0.0
        for _ in range(2):
            hit = rng.random() < gt.stop_gradient(p)
            count = count + np.where(hit, 1.0, 0.0)
            log_prob = log_prob + np.where(hit, np.log(p), np.log1p(-p))
        return count**2 * gt.score_function(log_prob)

    mean = gt.expectation(function, SAMPLES, rng=np.random.default_rng(12))
    # E = 2 p (1 - p) + 4 p**2
    assert_unbiased(np.array([gt.grad(mean)(0.4) for _ in range(ROUNDS)]), 2.0 + 4.0 * 0.4)
    assert_unbiased(np.array([gt.hessian(mean)(0.4) for _ in range(ROUNDS)]), 4.0)
