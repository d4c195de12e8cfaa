"""What the instructions compute that only registers take part in.

Each function takes the instruction and its source operands as arrays, and returns the result.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxsim.program import Instruction, UnsupportedError
from ptxsim.values import Array, as_device, bits_of, numpy_type, to_bfloat16, to_float16

Operation = Callable[..., Array]


def _wide(x: Array, ptx_type: str) -> Array:
    return x.astype(numpy_type(ptx_type[0] + str(2 * bits_of(ptx_type))))


def _add(_: Instruction, x: Array, y: Array) -> Array:
    return as_device(x + y)


def _subtract(_: Instruction, x: Array, y: Array) -> Array:
    return as_device(x - y)


def _multiply(instruction: Instruction, x: Array, y: Array) -> Array:
    kind = instruction.type
    if "wide" in instruction.modifiers:
        return _wide(x, kind) * _wide(y, kind)
    if "hi" in instruction.modifiers:
        if bits_of(kind) > 32:
            raise UnsupportedError(str(instruction))
        product = _wide(x, kind) * _wide(y, kind)
        return (product >> product.dtype.type(bits_of(kind))).astype(x.dtype)
    return as_device(x * y)


def _multiply_add(instruction: Instruction, x: Array, y: Array, z: Array) -> Array:
    if instruction.type.startswith("f"):
        raise UnsupportedError(str(instruction))
    return _multiply(instruction, x, y) + z


def _divide(instruction: Instruction, x: Array, y: Array) -> Array:
    if instruction.type != "f32":
        raise UnsupportedError(str(instruction))
    return as_device(x / y)


def _square_root(instruction: Instruction, x: Array) -> Array:
    if instruction.type != "f32":
        raise UnsupportedError(str(instruction))
    with np.errstate(invalid="ignore"):
        return as_device(np.sqrt(x))


def _negate(instruction: Instruction, x: Array) -> Array:
    if instruction.type == "f32":
        return (x.view(np.uint32) ^ np.uint32(1 << 31)).view(np.float32)
    return -x


def _extreme(pick: Callable[[Array, Array], Array]) -> Operation:
    def operation(instruction: Instruction, x: Array, y: Array) -> Array:
        if instruction.type == "s16x2":
            halves = x.view(np.int16), y.view(np.int16)
            return pick(*halves).view(np.uint32)
        if instruction.type.startswith("f"):
            raise UnsupportedError(
                str(instruction)
            )  # which of 0 and -0, and NaN, is best not asked
        return pick(x, y)

    return operation


def _shift_left(_: Instruction, x: Array, amount: Array) -> Array:
    width = 8 * x.dtype.itemsize
    shifted = x << np.minimum(amount, width - 1).astype(x.dtype)
    return np.where(amount >= width, x.dtype.type(0), shifted)


def _shift_right(_: Instruction, x: Array, amount: Array) -> Array:
    width = 8 * x.dtype.itemsize
    shifted = x >> np.minimum(amount, width - 1).astype(x.dtype)
    if x.dtype.kind == "i":
        return shifted
    return np.where(amount >= width, x.dtype.type(0), shifted)


_COMPARE = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _set_predicate(instruction: Instruction, x: Array, y: Array, *previous: Array) -> Array:
    name = instruction.modifiers[0]
    unordered = np.isnan(x) | np.isnan(y) if x.dtype.kind == "f" else np.zeros(x.shape, bool)
    if name in ("nan", "num"):
        result = unordered == (name == "nan")
    elif name.endswith("u") and name[:-1] in _COMPARE:
        result = _COMPARE[name[:-1]](x, y) | unordered
    elif name in _COMPARE:
        result = _COMPARE[name](x, y) & ~unordered
    else:
        raise UnsupportedError(str(instruction))
    if previous:
        combine = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
        result = combine[instruction.modifiers[1]](result, previous[0])
    return result


def _select(_: Instruction, x: Array, y: Array, condition: Array) -> Array:
    return np.where(condition, x, y)


_NARROW_PAIRS = {"bf16x2": to_bfloat16, "f16x2": to_float16}


def _convert(instruction: Instruction, x: Array, *low: Array) -> Array:
    *rounding, to, of = instruction.modifiers
    if of == "f32" and to in _NARROW_PAIRS and rounding == ["rn"] and low:
        narrow = _NARROW_PAIRS[to]
        return narrow(x).astype(np.uint32) << np.uint32(16) | narrow(low[0])
    if of == "f32" and to == "bf16" and rounding == ["rn"]:
        return to_bfloat16(x)
    if of == "f32" and to == "f16" and rounding == ["rn"]:
        return to_float16(x)
    if of == "f16" and to == "f32" and not rounding:
        return as_device(x.astype(np.float32))
    if of == "f32" and to in ("s32", "u32") and rounding in (["rzi"], ["rni"]):
        limits = np.iinfo(numpy_type(to))
        whole = (np.trunc if rounding == ["rzi"] else np.rint)(x.astype(np.float64))
        whole = np.where(np.isnan(whole), 0, np.clip(whole, limits.min, limits.max))
        return whole.astype(numpy_type(to))
    if to == "f32" and of[0] in "us" and rounding == ["rn"]:
        return x.astype(np.float32)
    if to[0] in "us" and of[0] in "us" and not rounding:
        return x.astype(numpy_type(to))
    raise UnsupportedError(str(instruction))


def _permute(instruction: Instruction, x: Array, y: Array, selector: Array) -> Array:
    if instruction.modifiers != ("b32",):
        raise UnsupportedError(str(instruction))
    words = [(source >> np.uint32(8 * i)) & np.uint32(255) for source in (x, y) for i in range(4)]
    table = np.stack(words)
    result = np.zeros(x.shape, np.uint32)
    for i in range(4):
        pick = (selector >> np.uint32(4 * i)) & np.uint32(15)
        byte = table[(pick & 7).astype(np.int64), np.arange(x.size)]
        sign = np.where(byte & 128, 255, 0)
        result |= np.where(pick & 8, sign, byte).astype(np.uint32) << np.uint32(8 * i)
    return result


def _extract(instruction: Instruction, x: Array, position: Array, length: Array) -> Array:
    if not ((length > 0) & (position + length <= bits_of(instruction.type))).all():
        raise UnsupportedError(f"{instruction}: a field that leaves the word")
    wide = x.astype(np.int64) >> position.astype(np.int64)
    limit = np.int64(1) << length.astype(np.int64)
    field = wide & limit - 1
    if instruction.type.startswith("s"):
        field = np.where(field >= limit >> 1, field - limit, field)
    return field.astype(x.dtype)


def _insert(
    instruction: Instruction, field: Array, whole: Array, position: Array, length: Array
) -> Array:
    if not ((length > 0) & (position + length <= bits_of(instruction.type))).all():
        raise UnsupportedError(f"{instruction}: a field that leaves the word")
    ones = np.uint64(2**64 - 1) >> (64 - length.astype(np.uint64))
    at = position.astype(np.uint64)
    field = (field.astype(np.uint64) & ones) << at
    return (whole.astype(np.uint64) & ~(ones << at) | field).astype(whole.dtype)


def _funnel_shift(instruction: Instruction, low: Array, high: Array, amount: Array) -> Array:
    left, mode = instruction.modifiers[0] == "l", instruction.modifiers[1]
    if mode != "wrap" or instruction.type != "b32":
        raise UnsupportedError(str(instruction))
    both = high.astype(np.uint64) << np.uint64(32) | low.astype(np.uint64)
    by = (amount & 31).astype(np.uint64)
    return ((both << by) >> np.uint64(32) if left else both >> by).astype(np.uint32)


def _bitwise(combine: Callable[[Array, Array], Array]) -> Operation:
    return lambda _, x, y: combine(x, y)


OPERATIONS: dict[str, Operation] = {
    "add": _add,
    "sub": _subtract,
    "mul": _multiply,
    "mad": _multiply_add,
    "div": _divide,
    "sqrt": _square_root,
    "neg": _negate,
    "min": _extreme(np.minimum),
    "max": _extreme(np.maximum),
    "and": _bitwise(np.bitwise_and),
    "or": _bitwise(np.bitwise_or),
    "xor": _bitwise(np.bitwise_xor),
    "not": lambda _, x: ~x,
    "shl": _shift_left,
    "shr": _shift_right,
    "shf": _funnel_shift,
    "setp": _set_predicate,
    "selp": _select,
    "cvt": _convert,
    "cvta": lambda _, x: x,
    "mov": lambda _, x: x,
    "prmt": _permute,
    "bfe": _extract,
    "bfi": _insert,
}

# Types of the source operands where they are not all the instruction's own.
SOURCE_TYPES: dict[str, Callable[[Instruction], tuple[str, ...]]] = {
    "min": lambda i: ("b32", "b32") if i.type == "s16x2" else (i.type, i.type),
    "shl": lambda i: (i.type, "u32"),
    "shr": lambda i: (i.type, "u32"),
    "shf": lambda i: ("u32", "u32", "u32"),
    "selp": lambda i: (i.type, i.type, "pred"),
    "setp": lambda i: (i.type, i.type, "pred"),
    "bfe": lambda i: (i.type, "u32", "u32"),
    "bfi": lambda i: (i.type, i.type, "u32", "u32"),
    "mad": lambda i: (
        i.type,
        i.type,
        i.type[0] + str(2 * bits_of(i.type)) if "wide" in i.modifiers else i.type,
    ),
}

# fp32 instructions say how they round; without it nvcc would be free to fuse them.
_ROUNDED = {"add", "sub", "mul", "div", "sqrt"}
_INEXACT = {"approx", "ftz", "full", "sat"}


def check(instruction: Instruction) -> None:
    """Raise `UnsupportedError` for an instruction without a meaning to the bit."""
    modifiers = set(instruction.modifiers)
    if modifiers & _INEXACT:
        raise UnsupportedError(str(instruction))
    if instruction.name in _ROUNDED and "f32" in modifiers and "rn" not in modifiers:
        raise UnsupportedError(f"{instruction}: rounding is not stated")
