"""The settings: defaults, the environment, checks, and the `with` block."""

from __future__ import annotations

from typing import Any

import pytest

from gradtape.config import Config, config

DEFAULTS = {
    "jit": True,
    "eager": False,
    "disk_cache": True,
    "cache_dir": None,
    "cache_size": 2**30,
    "precise_math": False,
    "trace_limit": 8,
    "num_threads": 1,
    "progress": True,
    "verify": False,
    "memory_cache": 512,
}


def test_defaults() -> None:
    settings = Config({})
    assert {name: getattr(settings, name) for name in DEFAULTS} == DEFAULTS


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("GRADTAPE_JIT", "0", "jit", False),
        ("GRADTAPE_JIT", "False", "jit", False),
        ("GRADTAPE_EAGER", "yes", "eager", True),
        ("GRADTAPE_EAGER", "ON", "eager", True),
        ("GRADTAPE_CACHE_DIR", "/somewhere", "cache_dir", "/somewhere"),
        ("GRADTAPE_CACHE_DIR", "", "cache_dir", None),
        ("GRADTAPE_CACHE_SIZE", "1000", "cache_size", 1000),
        ("GRADTAPE_TRACE_LIMIT", "3", "trace_limit", 3),
        ("GRADTAPE_DISABLE_JIT", "1", "jit", False),
        ("GRADTAPE_DISABLE_JIT", "0", "jit", True),
        ("GRADTAPE_DISABLE_DISK_CACHE", "1", "disk_cache", False),
    ],
)
def test_the_environment_sets_defaults(variable: str, text: str, name: str, value: Any) -> None:
    assert getattr(Config({variable: text}), name) == value


@pytest.mark.parametrize(
    ("variable", "text", "told"),
    [
        ("GRADTAPE_JIT", "maybe", "one of 1, true"),
        ("GRADTAPE_TRACE_LIMIT", "many", "int of at least 1"),
        ("GRADTAPE_TRACE_LIMIT", "0", "int of at least 1"),
    ],
)
def test_what_the_environment_says_is_checked(variable: str, text: str, told: str) -> None:
    with pytest.raises(ValueError, match=f"{variable}.*{text}.*{told}"):
        Config({variable: text})


@pytest.mark.parametrize("name", DEFAULTS)
def test_setting_and_reading(name: str) -> None:
    settings = Config({})
    default = DEFAULTS[name]
    other = not default if isinstance(default, bool) else "folder" if default is None else 7
    setattr(settings, name, other)
    assert getattr(settings, name) == other


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("jit", 1, "bool"),
        ("jit", None, "bool"),
        ("cache_dir", 5, "str or None"),
        ("num_threads", 2.0, "int of at least 1"),
        ("num_threads", True, "int of at least 1"),
        ("cache_size", "1 GB", "int of at least 0"),
    ],
)
def test_a_value_of_another_type_is_an_error_that_says_so(name: str, value: Any, expected: str) -> None:
    settings = Config({})
    with pytest.raises(TypeError) as caught:
        setattr(settings, name, value)
    message = str(caught.value)
    assert f"gradtape.config.{name}" in message
    assert repr(value) in message
    assert message.endswith(f"expected {expected}")
    assert getattr(settings, name) == DEFAULTS[name]


def test_numbers_have_a_least_value() -> None:
    with pytest.raises(ValueError, match="num_threads got 0"):
        Config({}).num_threads = 0


def test_unknown_names_are_answered_with_the_nearest_one() -> None:
    settings: Any = Config({})
    with pytest.raises(AttributeError, match="Did you mean 'num_threads'"):
        settings.num_thread = 2
    with pytest.raises(AttributeError, match="Did you mean 'jit'"):
        settings.jitt  # noqa: B018
    with pytest.raises(AttributeError, match="There are: jit, eager"):
        settings.zzz = 1


def test_overriding_ends_with_the_block() -> None:
    settings = Config({})
    with settings.override(jit=False, trace_limit=2) as inside:
        assert inside is settings
        assert (settings.jit, settings.trace_limit) == (False, 2)
        with settings.override(jit=True):
            assert settings.jit
        assert not settings.jit
    assert (settings.jit, settings.trace_limit) == (True, 8)


def test_overriding_ends_with_an_exception_too() -> None:
    settings = Config({})
    with pytest.raises(KeyError), settings.override(eager=True):
        raise KeyError
    assert not settings.eager


def test_an_override_that_cannot_be_made_changes_nothing() -> None:
    settings = Config({})
    with pytest.raises(TypeError), settings.override(eager=True, num_threads="two"):
        pass
    with pytest.raises(AttributeError, match="Did you mean"), settings.override(eager=True, num_thread=2):
        pass
    assert (settings.eager, settings.num_threads) == (False, 1)


def test_the_representation_is_a_table_of_assignments() -> None:
    lines = repr(Config({})).splitlines()
    assert lines[0] == "gradtape.config:"
    assert len(lines) > len(DEFAULTS)
    for name, value in DEFAULTS.items():
        assert any(line.strip().startswith(f"{name} = {value!r} ") for line in lines)


def test_dir_lists_the_settings() -> None:
    assert set(DEFAULTS) < set(dir(config))
