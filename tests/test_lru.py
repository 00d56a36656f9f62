"""The bounded table: what was used last stays, in any number of threads."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

from gradtape.lru import LRU


def test_what_was_not_used_for_longest_goes() -> None:
    table: LRU[str, int] = LRU(lambda: 3)
    for number, key in enumerate("abc"):
        table[key] = number
    assert table.get("a") == 0
    table["d"] = 3
    assert ["b" in table, "a" in table, "c" in table, "d" in table] == [False, True, True, True]
    table["c"] = 4
    table["e"] = 5
    assert table.get("c") == 4 and "a" not in table and len(table) == 3


def test_the_limit_may_change() -> None:
    limit = [5]
    table: LRU[int, int] = LRU(lambda: limit[0])
    for key in range(5):
        table[key] = key
    limit[0] = 2
    table[5] = 5
    assert [key for key in range(6) if key in table] == [4, 5]
    assert table.clear() == 2 and len(table) == 0


def test_a_key_without_a_hash_is_an_error() -> None:
    with pytest.raises(TypeError):
        LRU[object, int](lambda: 2).get([])


def test_random_uses_agree_with_a_list_in_the_order_of_use() -> None:
    rng = np.random.default_rng(3)
    table: LRU[int, int] = LRU(lambda: 7)
    order: list[int] = []
    for number in range(3000):
        key = int(rng.integers(12))
        if rng.random() < 0.5:
            assert (table.get(key) is not None) == (key in order)
            if key not in order:
                continue
        else:
            table[key] = number
        order = [*[other for other in order if other != key], key][-7:]
        assert len(table) == len(order) and all(other in table for other in order)


def test_a_dropped_value_may_use_the_table() -> None:
    table: LRU[int, object] = LRU(lambda: 1)

    class Value:
        pass

    first = Value()
    weakref.finalize(first, table.__setitem__, 2, "late")
    table[0] = first
    del first
    table[1] = Value()
    gc.collect()
    assert len(table) == 1


def test_several_threads() -> None:
    table: LRU[int, int] = LRU(lambda: 10)
    wrong: list[object] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for key in rng.integers(40, size=3000).tolist():
            value = table.get(key)
            if value not in (None, key):
                wrong.append((key, value))
            table[key] = key

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(table) <= 10 + 4


def test_a_large_table_drops_many_entries_at_once() -> None:
    """It looks for the oldest entries among all: once for many, as a loop over many more keys than it keeps takes minutes otherwise."""
    table: LRU[int, int] = LRU(lambda: 1024)
    lengths = set()
    for number in range(5000):
        table[number] = number
        lengths.add(len(table))
        assert number in table and len(table) <= 1024
    falls = 5000 - len(table)
    assert falls % 17 == 0 and 1024 - 16 in lengths
