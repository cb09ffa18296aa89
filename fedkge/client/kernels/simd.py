"""Eight floats at once, for kernels that must keep their sums in vector registers.

Left to itself the compiler guards every short loop against overlapping arrays and writes sums back to memory;
with lanes a kernel says what stays in a register. They exist inside compiled functions only. On a processor
with narrower registers the compiler splits them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Protocol, cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, register_model

from fedkge.client.kernels.arrays import Floats

__all__ = ["LANES", "Lanes", "choose", "every", "fetch", "load", "magnitude", "root", "store", "total"]

LANES = 8
_VECTOR = ir.VectorType(ir.FloatType(), LANES)
_INDEX = ir.IntType(32)
_FLAGS = ("contract", "nsz", "arcp")  # a product and a sum may become one instruction


class Lanes(Protocol):
    """Eight floats, as type checkers see them."""

    def __add__(self, other: Lanes) -> Lanes: ...
    def __sub__(self, other: Lanes) -> Lanes: ...
    def __mul__(self, other: Lanes) -> Lanes: ...
    def __truediv__(self, other: Lanes) -> Lanes: ...


class _LanesType(types.Type):
    """Eight floats, as numba sees them."""

    def __init__(self) -> None:
        super().__init__(name="Lanes")


_lanes = _LanesType()


@register_model(_LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, numba_type: Any) -> None:
        super().__init__(manager, numba_type, _VECTOR)


def _operator(symbol: Callable[[Any, Any], Any], instruction: str) -> None:
    """Teach numba one operator of two lanes."""

    @infer_global(symbol)
    class _Typed(ConcreteTemplate):
        cases = (signature(_lanes, _lanes, _lanes),)

    @lower_builtin(symbol, _LanesType, _LanesType)
    def _emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return getattr(builder, instruction)(*args, flags=_FLAGS)


for _symbol, _inplace, _instruction in (
    (operator.add, operator.iadd, "fadd"),
    (operator.sub, operator.isub, "fsub"),
    (operator.mul, operator.imul, "fmul"),
    (operator.truediv, operator.itruediv, "fdiv"),
):
    _operator(_symbol, _instruction)
    _operator(_inplace, _instruction)


def _address(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """Where eight floats stand in array[row, k:] of a C-contiguous array."""
    array = context.make_array(sig.args[0])(context, builder, args[0])
    row, k = (context.cast(builder, args[i], sig.args[i], types.intp) for i in (1, 2))
    width = cgutils.unpack_tuple(builder, array.shape)[1]
    place = builder.gep(array.data, [builder.add(builder.mul(row, width), k)])
    return builder.bitcast(place, _VECTOR.as_pointer())


def _call(builder: Any, name: str, result: Any, args: Any, flags: tuple[str, ...] = ()) -> Any:
    """Call a function that the compiler itself provides."""
    shape = ir.FunctionType(result, [arg.type for arg in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, shape, name), args, fastmath=flags)


@intrinsic
def _load(typing: Any, array: Any, row: Any, k: Any) -> Any:
    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        value = builder.load(_address(context, builder, sig, args))
        value.align = 4  # rows begin anywhere
        return value

    return _lanes(array, row, k), emit


@intrinsic
def _store(typing: Any, array: Any, row: Any, k: Any, value: Any) -> Any:
    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store(args[3], _address(context, builder, sig, args)).align = 4
        return context.get_dummy_value()

    return types.void(array, row, k, value), emit


@intrinsic
def _fetch(typing: Any, array: Any, row: Any, k: Any) -> Any:
    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        place = builder.bitcast(_address(context, builder, sig, args), ir.IntType(8).as_pointer())
        to_be_written, kept, data = (ir.Constant(_INDEX, value) for value in (1, 3, 1))
        shape = ir.FunctionType(ir.VoidType(), [place.type, *[_INDEX] * 3])
        function = cgutils.get_or_insert_function(builder.module, shape, "llvm.prefetch.p0i8")
        builder.call(function, [place, to_be_written, kept, data])
        return context.get_dummy_value()

    return types.void(array, row, k), emit


@intrinsic
def _every(typing: Any, x: Any) -> Any:
    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        nothing = ir.Constant(_VECTOR, ir.Undefined)
        first = builder.insert_element(nothing, args[0], ir.Constant(_INDEX, 0))
        return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(_INDEX, LANES), [0] * LANES))

    return _lanes(types.float32), emit


@intrinsic
def _choose(typing: Any, x: Any, y: Any, above: Any, otherwise: Any) -> Any:
    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        x, y, above, otherwise = args
        return builder.select(builder.fcmp_ordered(">", x, y), above, otherwise)

    return _lanes(x, y, above, otherwise), emit


@intrinsic
def _magnitude(typing: Any, x: Any) -> Any:
    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _call(builder, f"llvm.fabs.v{LANES}f32", _VECTOR, args)

    return _lanes(x), emit


@intrinsic
def _root(typing: Any, x: Any) -> Any:
    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _call(builder, f"llvm.sqrt.v{LANES}f32", _VECTOR, args)

    return _lanes(x), emit


@intrinsic
def _total(typing: Any, x: Any) -> Any:
    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        start = ir.Constant(ir.FloatType(), 0.0)
        name = f"llvm.vector.reduce.fadd.v{LANES}f32"
        return _call(builder, name, ir.FloatType(), [start, *args], ("reassoc", "nsz"))

    return types.float32(x), emit


load = cast(Callable[[Floats, int, int], Lanes], _load)  # array[row, k : k + 8]
store = cast(Callable[[Floats, int, int, Lanes], None], _store)  # array[row, k : k + 8] = value
fetch = cast(
    Callable[[Floats, int, int], None], _fetch
)  # bring array[row, k] nearer, while others are worked on
every = cast(Callable[[np.float32], Lanes], _every)  # the same number in every lane
choose = cast(Callable[[Lanes, Lanes, Lanes, Lanes], Lanes], _choose)  # the third where x > y, else the last
magnitude = cast(Callable[[Lanes], Lanes], _magnitude)
root = cast(Callable[[Lanes], Lanes], _root)
total = cast(Callable[[Lanes], np.float32], _total)  # the sum over the lanes, always in the same order
