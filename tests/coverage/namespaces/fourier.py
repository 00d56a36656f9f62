"""The functions of `numpy.fft` and `scipy.fft`."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import scipy.fft

from tests.coverage.cases import Case, Namespace, call, public_functions

X = np.array([0.31, 1.24, -0.72, 0.95, 2.1, -1.63])
TWO = np.sin(1.3 * np.arange(12.0) + 0.2).reshape(3, 4)
Z = X + 1j * np.cos(X)
TWO_Z = TWO + 1j * np.cos(2 * TWO)


def _transforms(module: ModuleType) -> dict[str, list[Case]]:
    def of(name: str, *options: dict[str, object], plane: bool, numbers: bool) -> list[Case]:
        function = getattr(module, name)
        array = (TWO_Z if plane else Z) if numbers else (TWO if plane else X)
        return [
            found
            for option in ({}, *options)
            for found in call(lambda a, option=option: function(a, **option), array)
        ]

    one = {"n": 5}, {"n": 8, "norm": "ortho"}, {"norm": "forward"}
    many = {"s": (2, 5), "norm": "ortho"}, {"axes": (0, 1), "norm": "forward"}
    return {
        **{name: of(name, *one, plane=False, numbers=True) for name in ("fft", "ifft", "irfft", "hfft")},
        **{name: of(name, *one, plane=False, numbers=False) for name in ("rfft", "ihfft")},
        **{name: of(name, *many, plane=True, numbers=True) for name in ("fft2", "fftn", "ifft2", "ifftn")},
        **{name: of(name, *many, plane=True, numbers=True) for name in ("irfft2", "irfftn")},
        **{name: of(name, *many, plane=True, numbers=False) for name in ("rfft2", "rfftn")},
        "fftshift": of("fftshift", {"axes": 0}, plane=True, numbers=False),
        "ifftshift": of("ifftshift", {"axes": 1}, plane=True, numbers=False),
        "fftfreq": call(lambda d: module.fftfreq(6, d), 0.3),
        "rfftfreq": call(lambda d: module.rfftfreq(7, d), 0.3),
    }


def _cosines(name: str) -> list[Case]:
    function = getattr(scipy.fft, name)
    array = TWO if name.endswith("n") else X
    return [
        found
        for kind in (1, 2, 3, 4)
        for norm in ("backward", "ortho")
        for found in call(lambda a, kind=kind, norm=norm: function(a, kind, norm=norm), array)
    ]


NUMPY_FFT = Namespace("numpy.fft", public_functions(np.fft), _transforms(np.fft))
SCIPY_FFT = Namespace(
    "scipy.fft",
    public_functions(scipy.fft),
    {
        **_transforms(scipy.fft),
        **{name: _cosines(name) for name in ("dct", "dst", "idct", "idst", "dctn", "dstn", "idctn", "idstn")},
        **{
            name: [
                *call(getattr(scipy.fft, name), TWO if name.startswith("i") else TWO_Z),
                *call(
                    lambda a, name=name: getattr(scipy.fft, name)(a, s=(2, 6), norm="ortho"),
                    TWO if name.startswith("i") else TWO_Z,
                ),
            ]
            for name in ("hfft2", "hfftn", "ihfft2", "ihfftn")
        },
        "fht": call(lambda a, mu: scipy.fft.fht(a, 0.2, mu, offset=0.1, bias=0.05), X, 0.4),
        "ifht": call(lambda a, mu: scipy.fft.ifht(a, 0.2, mu, offset=0.1, bias=-0.05), X, 0.4),
        "fhtoffset": call(lambda d, mu: scipy.fft.fhtoffset(d, mu, initial=0.1, bias=0.05), 0.2, 0.4),
    },
    others={
        **dict.fromkeys(["next_fast_len", "prev_fast_len"], "it counts"),
        **dict.fromkeys(
            [
                "get_workers",
                "set_workers",
                "register_backend",
                "set_backend",
                "set_global_backend",
                "skip_backend",
            ],
            "it sets how transforms are computed",
        ),
    },
)
