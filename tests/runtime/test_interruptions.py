"""Handlers of signals while C code runs that calls Python."""

import signal
import threading

import pytest

from gradtape.interruptions import Deferral


class Alarm(Exception):
    pass


@pytest.fixture(autouse=True)
def handled():
    seen = []

    def handle(number, frame):
        seen.append(number)
        raise Alarm

    before = signal.signal(signal.SIGTERM, handle)
    yield seen
    assert signal.getsignal(signal.SIGTERM) is handle
    signal.signal(signal.SIGTERM, before)


def test_an_exception_between_callbacks_is_kept_and_ends_the_next_one(handled):
    with Deferral() as deferral:
        called = deferral.calls(lambda x: x)
        assert called(True)
        signal.raise_signal(signal.SIGTERM)
        assert not called(True)
    assert handled == [signal.SIGTERM]
    assert [type(error) for error in deferral.errors] == [Alarm]


def test_an_exception_ends_the_callback_that_it_meets(handled):
    reached = []

    def callback():
        signal.raise_signal(signal.SIGTERM)
        reached.append(True)

    with Deferral() as deferral:
        assert not deferral.calls(callback)()
        signal.raise_signal(signal.SIGTERM)
    assert not reached
    assert [type(error) for error in deferral.errors] == [Alarm, Alarm]


def test_a_handler_that_raises_nothing_ends_nothing():
    seen = []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        with Deferral() as deferral:
            signal.raise_signal(signal.SIGINT)
            assert deferral.calls(lambda: None)()
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIGINT]
    assert not deferral.errors


def test_deferrals_are_nested(handled):
    with Deferral() as outer:

        def callback():
            with Deferral() as inner:
                signal.raise_signal(signal.SIGTERM)
                assert not inner.calls(lambda: True)()
            raise inner.errors[0]

        assert not outer.calls(callback)()
    assert [type(error) for error in outer.errors] == [Alarm]
    assert handled == [signal.SIGTERM]


def test_other_threads_keep_the_handlers():
    handler = signal.getsignal(signal.SIGTERM)
    found = []

    def work():
        with Deferral() as deferral:
            found.append(signal.getsignal(signal.SIGTERM))
            found.append(deferral.calls(lambda: False)())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [handler, False]
