"""Statements of random NumPy programs: templates, and what their operands have to be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Wants = Callable[[Any], bool]


def any_(x: Any) -> bool:
    return True


def array(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.ndim > 0


def filled(x: Any) -> bool:
    return array(x) and x.size > 0


def writable(x: Any) -> bool:
    return filled(x) and x.flags.writeable


def floating(x: Any) -> bool:
    return np.asarray(x).dtype.kind == "f"


def float_array(x: Any) -> bool:
    return filled(x) and floating(x)


def written_float(x: Any) -> bool:
    return writable(x) and x.dtype.kind == "f"


def integer(x: Any) -> bool:
    return filled(x) and x.dtype.kind in "iu"


def boolean(x: Any) -> bool:
    return filled(x) and x.dtype.kind == "b"


def complex_(x: Any) -> bool:
    return filled(x) and x.dtype.kind == "c"


def real(x: Any) -> bool:
    return np.asarray(x).dtype.kind != "c"


def real_array(x: Any) -> bool:
    return filled(x) and real(x)


def vector(x: Any) -> bool:
    return filled(x) and x.ndim == 1


def matrix(x: Any) -> bool:
    return filled(x) and x.ndim == 2


def square(x: Any) -> bool:
    return matrix(x) and x.shape[0] == x.shape[1]


@dataclass(frozen=True)
class Template:
    """A statement.

    Attributes
    ----------
    text : str
        With ``{r}`` for the name of the result, and ``{a}``, ``{b}``, ``{c}`` for operands.
    wants : tuple of callable
        What the operands must be.
    """

    text: str
    wants: tuple[Wants, ...]


TEMPLATES: list[Template] = []


def add(wants: tuple[Wants, ...], *texts: str) -> None:
    """Enter templates; an expression alone is assigned to a new name."""
    TEMPLATES.extend(Template(text if is_statement(text) else "{r} = " + text, wants) for text in texts)


def is_statement(text: str) -> bool:
    """Return whether a template is more than an expression."""
    try:
        compile(text.format(r="r", a="a", b="b"), "template", "eval")
    except SyntaxError:
        return True
    return False


# Element by element
add((any_, any_), "{a} + {b}", "{a} - {b}", "{a} * {b}", "np.multiply({a}, {b})")
add(
    (real, real),
    "np.maximum({a}, {b})",
    "np.minimum({a}, {b})",
    "np.where({a} > {b}, {a}, {b})",
    "{a} > {b}",
    "{a} <= {b}",
)
add(
    (real, floating),
    "{a} / (2.0 + np.square({b}))",
    "np.hypot({a}, {b} + 3.0)",
    "np.logaddexp({a}, {b})",
    "np.arctan2({a}, {b} + 2.0)",
)
add(
    (any_,),
    "{a} * 0.5",
    "2 - {a}",
    "-1 * {a}",
    "np.tanh({a} * 0.5)",
    "np.square({a})",
    "np.abs({a})",
    "np.where({a} == {a}, {a}, 0)",
    "{a} ** 2",
    "np.conj({a})",
    "{a} == {a}",
    "np.exp({a} * 0.1)",
    "np.sin({a})",
    "np.positive({a}) * True",
    "np.isfinite({a})",
)
add(
    (floating,),
    "+{a}",
    "np.clip({a}, -0.7, 0.8)",
    "np.arctan({a})",
    "np.log1p({a} * {a})",
    "np.cbrt({a} + 3.0)",
    "np.sqrt({a} * {a} + 0.5)",
    "np.sign({a})",
    "np.floor({a})",
    "np.round({a}, 1)",
    "np.expm1({a} * 0.2)",
    "np.sinc({a} * 0.3)",
    "({a} * {a} + 0.3) ** 0.5",
    "np.power({a} * {a} + 1.0, 1.5)",
    "np.fmod({a}, 0.7)",
    "{a} % 0.7",
    "{a} // 0.3",
    "np.heaviside({a}, 0.5)",
    "np.nan_to_num({a})",
    "np.logical_not({a})",
    "np.trunc({a} * 3)",
    "np.copysign({a}, 1.0)",
    "np.deg2rad({a})",
    "np.float32(0.5) * {a}",
    "np.interp({a}, np.array([-1.0, 0.0, 2.0]), np.array([0.0, 1.0, -1.0]))",
)
add(
    (integer,),
    "{a} ** 2",
    "{a} // 3",
    "{a} % 4",
    "{a} & 3",
    "{a} | 1",
    "{a} << 1",
    "{a} >> 1",
    "~{a}",
    "{a} / 2",
    "np.gcd({a}, 6)",
    "np.clip({a}, 1, 3)",
    "{a} + np.int8(3)",
    "{a}.astype(np.float32)",
    "np.minimum({a}, 5)",
    "np.where({a} > 1, {a}, 7)",
    "np.bincount(np.ravel(np.abs({a}) % 5).astype(np.int64), minlength=5)",
    "np.equal({a}, 1)",
    "np.mean({a})",
    "np.cumsum({a})",
    "np.prod({a} % 3 + 1)",
    "np.sum({a}, dtype=np.float32)",
)
add(
    (boolean,),
    "~{a}",
    "{a} & True",
    "{a} + {a}",
    "np.sum({a})",
    "np.mean({a})",
    "{a} * 1.5",
    "np.any({a}, axis=0)",
    "np.all({a}, axis=-1)",
    "{a} ^ {a}",
    "np.count_nonzero({a}, axis=0)",
    "{a}.astype(np.int8)",
    "np.where({a}, 1.0, -1.0)",
    "{a} ** 2",
    "np.cumsum({a}, axis=-1)",
)
add(
    (complex_,),
    "{a}.real",
    "{a}.imag",
    "np.abs({a})",
    "np.angle({a} + 3.0)",
    "{a}.conj()",
    "{a} * 1j",
    "np.real({a}) + np.imag({a})",
    "np.exp({a} * 0.1)",
    "np.sum({a})",
    "np.sqrt({a} + 3.0)",
)

# Reductions
add(
    (array,),
    "np.sum({a})",
    "np.sum({a}, axis=0)",
    "{a}.sum(axis=-1, keepdims=True)",
    "np.mean({a}, axis=0) if {a}.size else {a}",
    "np.prod({a} * 0.5, axis=-1)",
    "np.cumsum({a}, axis=0)",
    "np.cumsum({a})",
    "np.any({a})",
    "{a}.sum(axis=())",
    "np.count_nonzero({a})",
)
add(
    (float_array,),
    "np.var({a}, axis=0)",
    "{a}.std() + 0.1",
    "np.max({a}, axis=-1)",
    "{a}.min(axis=0)",
    "np.median({a}, axis=0)",
    "np.ptp({a})",
    "np.linalg.norm({a}.ravel() + 0.1)",
    "np.cumprod({a} * 0.5, axis=-1)",
    "np.nansum({a})",
    "np.average({a}, axis=0)",
    "np.quantile({a}, 0.3, axis=0)",
    "np.max({a}, initial=0.2)",
    "np.sum({a}, where={a} > 0)",
    "np.argmax({a}, axis=0)",
    "np.argmin({a})",
    "np.maximum.accumulate({a}, axis=0)",
    "np.add.reduce({a}, axis=0)",
    "np.add.reduceat({a}, [0], axis=0)",
    "np.multiply.outer({a}.ravel()[:3], {a}.ravel()[:2])",
    "np.gradient({a}.ravel()) if {a}.size > 1 else {a}",
    "np.trapezoid({a})",
    "np.mean({a}, axis=-1, keepdims=True) - {a}",
)

# Order
add(
    (float_array,),
    "np.sort({a}, axis=-1)",
    "np.sort({a}, axis=0)[::-1]",
    "np.argsort({a}, axis=-1, kind='stable')",
    "np.sort({a}, axis=None)[:3]",
    "np.searchsorted(np.sort({a}.ravel()), {a})",
    "np.diff({a}, axis=0)",
    "np.diff({a}, append=1.0, axis=-1)",
    "np.take_along_axis({a}, np.argsort({a}, axis=-1, kind='stable'), axis=-1)",
    "np.unique({a}.ravel())[:1]",
)

# Shape
add(
    (array,),
    "{a}.T",
    "{a}[::-1]",
    "{a}[1:]",
    "{a}[..., ::2]",
    "{a}[None]",
    "{a}[:, None]",
    "{a}.reshape(-1)",
    "np.ravel({a})",
    "{a}.reshape(1, -1)",
    "np.reshape({a}, {a}.shape[::-1])",
    "{a}.flatten()",
    "np.expand_dims({a}, -1)",
    "np.squeeze({a})",
    "np.swapaxes({a}, 0, -1)",
    "np.moveaxis({a}, 0, -1)",
    "np.flip({a})",
    "np.flip({a}, axis=-1)",
    "{a}.copy()",
    "np.copy({a})",
    "np.asarray({a})",
    "np.atleast_2d({a})",
    "np.roll({a}, 1, axis=0)",
    "np.concatenate([{a}, {a}])",
    "np.stack([{a}, {a}], axis=-1)",
    "np.tile({a}, 2)",
    "np.repeat({a}, 2, axis=0)",
    "np.broadcast_to({a}, (2, *{a}.shape))",
    "{a}.astype({a}.dtype, copy=False)",
    "np.ascontiguousarray({a})",
    "np.asfortranarray({a})",
    "np.pad({a}, 1)",
    "np.zeros_like({a})",
    "np.ones_like({a}) * {a}",
    "np.full_like({a}, 1)",
    "np.array_split({a}, 2)[0]",
    "np.array_split({a}, 2, axis=-1)[-1]",
    "np.unstack({a})[0]",
    "np.hstack([{a}, {a}])",
    "np.vstack([{a}, {a}])",
    "{a}.ravel('F')",
    "{a}.reshape(-1, order='F')",
    "np.append({a}, 1)",
    "np.delete({a}, 0, axis=0)",
    "np.insert({a}, 0, 1, axis=0)",
    "np.einsum('...i->i...', {a})",
    "{a}.ravel('K')",
    "np.nan_to_num({a})",
)
add(
    (filled,),
    "{a}[0]",
    "{a}[-1, ...]",
    "{a}[np.array([0, -1, 0])]",
    "{a}[..., np.array([0])]",
    "np.take({a}, [0, -1], axis=0)",
    "{a}.ravel()[0]",
    "{a}.max() if {a}.dtype.kind != 'c' else {a}.sum()",
    "{a}[[0, 0]]",
    "{a}[tuple([0] * {a}.ndim)]",
)
add(
    (matrix,),
    "np.rot90({a})",
    "np.fliplr({a})",
    "np.flipud({a})",
    "{a}[:, ::-1]",
    "{a}[0, :]",
    "{a}[:, 0]",
    "np.einsum('ij->ji', {a})",
    "np.einsum('ij,ij->i', {a}, {a})",
    "np.triu({a})",
    "np.tril({a}, -1)",
    "np.diagonal({a})",
    "np.diag({a})",
    "np.trace({a})",
    "{a} @ {a}.T",
    "np.outer({a}[0], {a}[:, 0])",
    "np.split({a}, 1, axis=1)[0]",
    "np.hsplit({a}, 1)[0]",
    "np.kron({a}[:1], {a}[:, :1])",
    "np.dot({a}.T, {a})",
    "np.inner({a}, {a})",
)
add(
    (square,),
    "np.einsum('ii->i', {a})",
    "np.einsum('ii', {a})",
    "{a} @ {a}",
    "np.diag(np.diag({a}))",
    "np.linalg.solve({a} * 0.1 + 3 * np.eye(len({a})), {a}[:, 0])",
    "np.linalg.det({a} * 0.1 + 2 * np.eye(len({a})))",
    "np.linalg.inv({a} * 0.1 + 3 * np.eye(len({a})))",
    "np.linalg.matrix_power({a} * 0.3, 2)",
)
add(
    (vector,),
    "np.diag({a})",
    "np.convolve({a}, [1.0, 0.5])",
    "np.outer({a}, {a})",
    "{a} @ {a}",
    "np.fft.fft({a}).real + 0.0123 * np.arange(len({a}))",
    "np.polyval([1.0, 2.0, -0.5], {a})",
    "np.vander({a} * 0.5, 3)",
    "np.correlate({a}, {a}[:2])",
    "np.cross({a}[:3], np.ones(3)) if {a}.size > 2 else {a}",
    "np.meshgrid({a}, {a})[0]",
    "np.linspace({a}[0], 1.0, 4)",
)
add(
    (array, array),
    "np.broadcast_arrays({a}, {b})[0] + 0",
    "np.concatenate([np.ravel({a}), np.ravel({b})])",
    "np.tensordot({a}, {b}, 0)",
    "{a} @ {b}",
    "np.dot({a}, {b})",
    "np.array([{a}.sum(), {b}.sum()])",
    "np.isin({a}, {b})",
)

# Writes
add(
    (writable,),
    "{a}[0] = 1",
    "{a}[...] = {a} * 2",
    "{a} += 1",
    "{a} *= 2",
    "{a}[1:] = {a}[:-1]",
    "{a}[::-1][0] = 3",
    "{a}.T[0] = 2",
    "{a}.reshape(-1)[0] = 4",
    "{a}.ravel()[-1] = 5",
    "{a}[:, None][0] = 0",
    "{a}.fill(2)",
    "np.flip({a})[0] = 1",
    "np.array_split({a}, 2)[0][...] = 3",
    "{a}[{a} > 0] = 1",
    "np.copyto({a}, 2)",
    "np.put({a}, [0], 3)",
    "np.swapaxes({a}, 0, -1)[0] = 6",
    "{a}[np.array([0, 0])] = 2",
    "{r} = {a}[0]\n{a}[0] = {a}[-1]\n{a}[-1] = {r}",
    "np.ravel({a})[0] = 2",
    "{a}.flat[0] = 2",
    "{a}[..., 0] = {a}[..., -1]",
    "np.putmask({a}, {a} > 0, 2)",
    "{a} -= {a}[0]",
)
add(
    (written_float,),
    "{a} *= 0.5",
    "{a}[0] -= 0.25",
    "{a} /= 2.0",
    "{a}[{a} > 0] *= 0.5",
    "np.add.at({a}, [0, 0], 0.5)",
    "np.multiply({a}, 0.5, out={a})",
    "np.tanh({a}, out={a})",
    "np.where({a} > 0, {a}, 0.5 * {a})",
    "{a} **= 2",
    "{a}.sort()",
    "np.nan_to_num({a}, copy=False)",
    "{a}[...] = np.sort({a}, axis=0)",
    "np.fill_diagonal({a}, 0.5)",
    "np.maximum({a}, 0.1, out={a})",
    "{a}[0] = {a}.mean()",
)
add(
    (writable, any_),
    "{a}[0] = {b}",
    "{a}[...] = {b}",
    "{a} += {b}",
    "{a}[1:] -= {b}",
    "{a}.T[...] = {b}",
    "{a}[np.array([0, -1])] = {b}",
    "np.copyto({a}, {b})",
    "{a}[-1:] = {b}",
    "np.reshape({a}, -1)[:1] = {b}",
)
add((square, any_), "np.einsum('ii->i', {a})[...] = {b}", "np.fill_diagonal({a}, {b})")

# Made to be written to
add(
    (any_,),
    "{r} = np.zeros(3)\n{r}[1] = np.sum({a})",
    "{r} = np.zeros((2, 2))\n{r}[:, 0] = np.sum({a})\n{r} = {r} + {r}.T",
    "{r} = np.ones((2, 3))\n{r}.reshape(-1)[::2] = np.mean({a})",
    "np.array([np.sum({a}), 1.0])",
    "np.array([[np.sum({a}), 0.0], [1.0, 2.0]])",
)

# Loops and branches
add(
    (any_,),
    "{r} = 0.0\nfor i in range(3):\n    {r} = {r} * 0.5 + np.sum({a}) * i",
    "if np.sum({a}) > 0.3:\n    {r} = {a} * 2\nelse:\n    {r} = {a} - 1",
    "{r} = {a}\nfor i in range(4):\n    {r} = np.tanh({r} * 0.7)",
    "{r} = np.abs(np.sum({a})) + 0.0\nwhile {r} > 1.0:\n    {r} = {r} * 0.4",
)
add(
    (writable,),
    "for row in {a}:\n    {r} = row * 2",
    "for i in range(1, len({a})):\n    {a}[i] = {a}[i] + {a}[i - 1]",
    "{r} = []\nfor row in {a}:\n    {r}.append(row.sum())\n{r} = np.stack({r})",
    "for i in range(len({a}) - 1):\n    {a}[i], {a}[i + 1] = {a}[i + 1], {a}[i]",
)
add((real,), "{r} = max(np.sum({a}), 0.3)", "{r} = {a} if np.mean({a}) > 0 else -1 * {a}")

# More of NumPy
add(
    (float_array,),
    "np.nanmean({a}, axis=0)",
    "np.nanmax({a}, axis=-1)",
    "np.unwrap({a}.ravel())",
    "np.select([{a} > 0.5, {a} > 0], [{a}, {a} * 2], 0.1)",
    "np.piecewise({a}, [{a} < 0], [-1.0, 2.0])",
    "np.apply_along_axis(np.sum, 0, {a})",
    "np.modf({a})[0]",
    "np.divmod({a}, 0.7)[1]",
    "np.float_power(np.abs({a}) + 0.5, 1.3)",
    "np.ldexp({a}, 2)",
    "np.frexp({a})[0]",
    "np.digitize({a}, np.array([-1.0, 0.0, 1.0]))",
    "np.histogram({a}, bins=3, range=(-2.0, 2.0))[0]",
    "np.partition({a}, 0, axis=-1)[..., 0]",
    "np.percentile({a}, [20, 60])",
    "np.logaddexp2({a}, 0.3)",
    "np.nextafter({a}, 1.0)",
    "np.spacing({a}) * 0.0",
    "np.arcsinh({a})",
    "np.sinh({a} * 0.3) / np.cosh({a})",
    "np.arcsin(np.tanh({a}) * 0.9)",
    "np.log(np.abs({a}) + 0.5)",
    "np.log2(np.abs({a}) + 0.5)",
    "np.exp2({a} * 0.4)",
    "np.signbit({a})",
    "np.isclose({a}, 0.5)",
    "np.i0({a} * 0.4)",
    "np.block([[{a}.ravel(), {a}.ravel()]])",
    "np.fmax({a}, 0.2)",
    "np.cumulative_sum({a}.ravel(), include_initial=True)",
    "np.nancumsum({a})",
    "np.argmax(np.sort({a}, axis=-1), axis=-1)",
    "np.ediff1d({a})",
    "np.linalg.norm({a} + 0.3, axis=0)",
    "np.std({a}, ddof=0, keepdims=True) + {a}",
    "np.minimum.reduce({a}, axis=-1)",
    "np.logaddexp.reduce({a}, axis=0)",
    "np.multiply.accumulate({a} * 0.5, axis=-1)",
    "np.subtract.outer({a}.ravel()[:2], {a}.ravel()[:3])",
    "{a}.astype(np.float32)",
    "{a}.astype(complex)",
    "{a}.astype(int)",
    "({a} * 40).astype(np.int8)",
    "{a} > {a}.mean()",
    "{a} * (1 + 2j)",
    "np.where({a} > 0, np.sqrt(np.abs({a}) + 0.01), 0.0)",
    "np.maximum({a}, np.float32(0.5))",
    "{a}.clip(0.0, None)",
    "np.copysign(0.5, {a} + 0.01)",
    "np.vectorize(np.tanh)({a})",
)
add(
    (integer,),
    "{a} ** 3",
    "np.power({a}, 2)",
    "{a} * {a}",
    "-1 * {a}",
    "{a} ^ 5",
    "np.left_shift({a}, 2)",
    "np.lcm({a} % 5 + 1, 4)",
    "np.sqrt(np.abs({a}))",
    "{a} > 2",
    "{a} + 0.5",
    "{a} * np.float32(0.5)",
    "{a} + np.uint8(1)",
    "{a}.astype(np.uint8)",
    "{a}.astype(bool)",
    "np.sort({a}, axis=-1)",
    "np.argsort({a}, axis=0, kind='stable')",
    "np.unique({a})",
    "np.max({a}, axis=0)",
    "np.argmax({a}, axis=-1)",
    "np.bitwise_count({a})",
    "np.diff({a}, axis=-1)",
    "np.dot({a}.ravel(), {a}.ravel())",
    "np.floor_divide({a}, 2)",
    "np.invert({a})",
    "np.arange(5)[np.abs({a}) % 5]",
    "np.eye(3)[np.abs({a}) % 3]",
    "np.median({a})",
    "np.var({a}, axis=-1)",
    "np.round({a})",
    "np.take(np.arange(4.0), np.abs({a}) % 4)",
    "np.choose(np.abs({a}) % 2, [{a}, {a} * 2])",
    "np.linspace(0, 1, 3) * {a}.ravel()[0]",
    "np.sum({a}, axis=0, dtype=np.float64)",
    "np.bitwise_and.reduce({a}, axis=-1)",
)
add(
    (boolean,),
    "np.logical_and({a}, True)",
    "np.logical_xor({a}, {a}[::-1])",
    "{a} - 1",
    "np.maximum({a}, False)",
    "np.argmax({a})",
    "np.where({a})[0].size",
    "{a} * 2 + 1",
    "np.max({a}, axis=-1)",
    "np.prod({a}, axis=0)",
    "np.sort({a}, axis=-1)",
    "{a} @ {a} if {a}.ndim == 1 else {a}",
    "np.packbits({a}) if False else {a}",
)
add(
    (complex_,),
    "np.linalg.norm({a} + 0.1)",
    "np.mean({a}, axis=0)",
    "{a} * {a}.conj()",
    "np.cumsum({a}, axis=-1)",
    "np.prod({a} * 0.5)",
    "np.real_if_close({a})",
    "{a} / (2.0 + np.abs({a}))",
    "np.power({a}, 2)",
    "np.sinh({a} * 0.2)",
    "np.log({a} + 5.0)",
    "np.dot({a}.ravel(), {a}.ravel())",
    "np.vdot({a}, {a})",
    "np.var({a})",
    "np.abs({a}) ** 2",
    "np.round({a}, 1)",
    "np.isclose({a}, 1.0)",
    "np.tanh({a} * 0.3)",
    "{a}.imag ** 2 + {a}.real",
)
add(
    (matrix,),
    "np.linalg.qr({a} + np.eye(*{a}.shape) * 2)[1] ** 2 if {a}.dtype.kind == 'f' else {a}",
    "np.linalg.svd({a}, compute_uv=False) if {a}.dtype.kind == 'f' else {a}",
    "np.cov({a}) if {a}.shape[1] > 1 else {a}",
    "np.einsum('ij->j', {a})",
    "np.einsum('ij,kj->ik', {a}, {a})",
    "np.vstack([{a}, {a}[:1]])",
    "np.column_stack([{a}, {a}[:, 0]])",
    "np.roll({a}, (1, 1), axis=(0, 1))",
    "{a}[::-1, ::-1]",
    "{a}[[0, -1], [0, -1]]",
    "{a}[np.ix_([0, -1], [0])]",
    "{a}[:, [0, 0]]",
    "np.linalg.pinv({a} + 0.0) if {a}.dtype.kind == 'f' and min({a}.shape) == 1 else {a}",
    "np.tensordot({a}, {a}, axes=((0, 1), (0, 1)))",
    "np.linalg.multi_dot([{a}.T, {a}, {a}.T])",
    "np.meshgrid({a}[0], {a}[:, 0])[1]",
    "np.rollaxis({a}, 1)",
)
add(
    (square,),
    "np.linalg.cholesky({a} @ {a}.T * 0.1 + np.eye(len({a}))) if {a}.dtype.kind == 'f' else {a}",
    "np.linalg.eigvalsh({a} + {a}.T) if {a}.dtype.kind == 'f' else {a}",
    "np.linalg.slogdet({a} * 0.1 + 2 * np.eye(len({a})))[1]",
)
add(
    (float_array, float_array),
    "np.inner({a}.ravel()[:2], {b}.ravel()[:2]) if {a}.size > 1 and {b}.size > 1 else {a}",
    "np.interp({a}, np.sort({b}.ravel()), np.arange({b}.size) * 1.0)",
    "np.where({a}.sum() > 0, {a}, {b}) if {a}.shape == {b}.shape else {a}",
    "np.polyval({a}.ravel()[:3], {b} * 0.5)",
    "np.convolve({a}.ravel(), {b}.ravel())",
    "np.linalg.lstsq(np.vander({a}.ravel()[:3], 2), np.cos(3.0 * {a}.ravel()[:3]), rcond=None)[0] if {a}.size > 2 else {b}",
    "np.vecdot({a}, {b})",
    "np.kron({a}.ravel()[:2], {b}.ravel()[:2])",
    "np.searchsorted(np.sort({a}.ravel()), {b})",
    "np.cross({a}.ravel()[:3], {b}.ravel()[:3] + np.arange(3.0)) if {a}.size > 2 and {b}.size > 2 else {b}",
)
add(
    (written_float,),
    "np.add({a}, 1.0, out={a}, where={a} > 0)",
    "{a}[..., 0] *= 2",
    "{a}[{a} < 0] = {a}[{a} < 0] * 0.5",
    "{a}[np.array([0, -1])] += 0.5",
    "np.subtract.at({a}, np.array([0]), 0.1)",
    "np.cumsum({a}, axis=0, out={a})",
    "np.clip({a}, -0.5, 0.5, out={a})",
    "np.put_along_axis({a}, np.argmax({a}, axis=-1, keepdims=True), 0.5, axis=-1)",
    "np.place({a}, {a} > 0.3, [0.1, 0.2])",
    "{a}[1:] += {a}[:-1]",
    "{a}[:-1] = {a}[1:]",
    "{a}[::2] = {a}[::-1][::2]",
    "{a}.T[...] = {a}.T * 2",
    "{a}.reshape(-1)[::2] *= 0.5",
    "np.squeeze({a})[...] = 0.5",
    "np.moveaxis({a}, 0, -1)[..., 0] += 1",
    "{a}.partition(0)\n{a}.sort()",
    "np.broadcast_to({a}, {a}.shape)",
    "{r} = {a}[...]\n{r} += 1",
    "{r} = {a}\n{a} = {a} * 2\n{r}[0] = 5",
    "{r} = {a}.copy()\n{r}[...] = 0.1\n{r}[0] = {a}[0]",
    "{r} = {a}[1:]\n{a}[...] = 0.5\n{r} = {r} * 2",
    "for k in range({a}.shape[0]):\n    {a}[k] = np.sin({a}[k]) + k",
    "for part in np.array_split({a}, 2):\n    part *= 2",
    "{r} = np.empty_like({a})\n{r}[...] = {a} * 2",
    "{r} = np.zeros({a}.shape)\nfor k in range({a}.shape[0]):\n    {r}[k] = {a}[k] * k",
    "{r} = 0.0\nfor row in {a}:\n    if np.sum(row) > 0:\n        {r} = {r} + np.sum(row)",
)
add(
    (any_, any_),
    "{r} = np.array([np.sum({a}), np.sum({b})])\n{r}[0] += 1",
    "{r} = np.stack([np.sum({a}), np.sum({b}) * 2, 0.5])",
    "np.array([[np.sum({a}), 1.0], [np.sum({b}), 2.0]])",
    "{r} = {a}\nfor k in range(3):\n    {r} = {r} * 0.5 + np.sum({b}) * 0.1",
    "{r} = np.sum({a}) if np.sum({a}) > np.sum({b}) else np.sum({b})",
    "{a} == {b}",
    "{a} != {b}",
    "np.hstack([np.ravel({a}), np.ravel({b})])",
)
