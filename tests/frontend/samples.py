"""Functions under test that pytest does not rewrite."""


def checked(x):
    assert x[0] > 0.0, "x is to be positive"
    for v in x:
        if v > 100.0:
            raise ValueError("too large")
    return x[0]
