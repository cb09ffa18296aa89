"""Pickles read without executing anything in them: plain values, and what is admitted by name.

Before anything is built, the opcodes are walked through: a few bytes of a pickle can ask for gigabytes of
memo, or for tuples so deep that hashing them overruns the interpreter's stack.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Callable, Mapping
from typing import IO, Any, ClassVar

__all__ = ["Admitted", "PickleReader", "checked_key", "next_pickle"]

_DEEPEST = 100  # values within values
_LEAVES = (
    "NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT STRING BINSTRING "
    "SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES BINBYTES8 "
    "BYTEARRAY8"
)
_CONTAINERS = "EMPTY_LIST LIST EMPTY_DICT DICT EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3"
_GROWING = frozenset(("APPEND", "APPENDS", "SETITEM", "SETITEMS"))
_PUTS = frozenset(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"))
_GETS = frozenset(("GET", "BINGET", "LONG_BINGET"))
_OBJECTS = "GLOBAL STACK_GLOBAL REDUCE NEWOBJ BUILD BINPERSID"
_FRAMING = "PROTO FRAME STOP MARK"
_KNOWN = _GROWING | _PUTS | _GETS | {*f"{_LEAVES} {_CONTAINERS} {_OBJECTS} {_FRAMING}".split()}
_KEYS = (str, bytes, int, float, bool, type(None))  # hashed in one step

Fill = Callable[[Any, Any], None]  # what BUILD does: an object and its state


class Admitted:
    """What a pickle may name.

    Args:
        names: stand-ins by module and name; those that can be called may be.
        fills: what BUILD does to an instance of exactly this class.
    """

    def __init__(self, names: Mapping[tuple[str, str], Any], fills: Mapping[type, Fill]) -> None:
        self.names, self.fills = dict(names), dict(fills)

    def callable(self, function: object) -> bool:
        return callable(function) and any(function is each for each in self.names.values())


def next_pickle(stream: IO[bytes], most: int | None = None) -> bytes:
    """The next pickle of a stream, if it asks for no more than it may; the stream stands behind it then.

    Args:
        most: how many bytes it may have; None: as many as there are.
    """
    place = stream.tell()
    raw = stream.read() if most is None else stream.read(most)
    length = _walked(raw, whole=most is None or len(raw) < most)
    stream.seek(place + length)
    return raw[:length]


class PickleReader(pickle._Unpickler):
    """Makes lists, dicts, tuples, numbers and texts out of what `next_pickle` gives, and what is admitted.

    In Python, because the one in C cannot be told what BUILD may fill: by it, a pickle can set attributes of
    whatever it may name.
    """

    stack: list[Any]
    append: Callable[[Any], None]
    pop_mark: Callable[[], list[Any]]

    def __init__(self, raw: bytes, admitted: Admitted) -> None:
        super().__init__(io.BytesIO(raw), encoding="utf-8")
        self.admitted = admitted

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.admitted.names:
            raise pickle.UnpicklingError(f"it asks for {_short(module)}.{_short(name)}")
        return self.admitted.names[module, name]

    def load_reduce(self) -> None:
        arguments = self.stack.pop()
        function = self.stack[-1]
        if not self.admitted.callable(function) or type(arguments) is not tuple:
            raise pickle.UnpicklingError("it calls what is no function")
        self.stack[-1] = function(*arguments)

    def load_newobj(self) -> None:
        arguments = self.stack.pop()
        kind = self.stack[-1]
        if not isinstance(kind, type) or kind not in self.admitted.fills or arguments != ():
            raise pickle.UnpicklingError("it makes an instance of what is no class")
        self.stack[-1] = object.__new__(kind)

    def load_build(self) -> None:
        state = self.stack.pop()
        target = self.stack[-1]
        if type(target) not in self.admitted.fills:
            raise pickle.UnpicklingError(f"it sets attributes of a {type(target).__name__}")
        self.admitted.fills[type(target)](target, state)

    def load_append(self) -> None:
        value = self.stack.pop()
        _require(self.stack[-1], list).append(value)

    def load_appends(self) -> None:
        values = self.pop_mark()
        _require(self.stack[-1], list).extend(values)

    def load_setitem(self) -> None:
        value = self.stack.pop()
        key = self.stack.pop()
        _require(self.stack[-1], dict)[checked_key(key)] = value

    def load_setitems(self) -> None:
        items = self.pop_mark()
        _require(self.stack[-1], dict).update(_pairs(items))

    def load_dict(self) -> None:
        items = self.pop_mark()
        self.append(dict(_pairs(items)))

    _own: ClassVar[dict[int, Any]] = {
        pickle.REDUCE[0]: load_reduce,
        pickle.NEWOBJ[0]: load_newobj,
        pickle.BUILD[0]: load_build,
        pickle.APPEND[0]: load_append,
        pickle.APPENDS[0]: load_appends,
        pickle.SETITEM[0]: load_setitem,
        pickle.SETITEMS[0]: load_setitems,
        pickle.DICT[0]: load_dict,
    }
    dispatch = {**pickle._Unpickler.dispatch, **_own}  # noqa: RUF012  (as in the parent)


def checked_key(key: Any) -> Any:
    """A key of a dict, if its hash is one of no other values."""
    if type(key) not in _KEYS:
        raise pickle.UnpicklingError(f"it has a dict with a key that is a {type(key).__name__}")
    return key


def _pairs(items: list[Any]) -> list[tuple[Any, Any]]:
    return [(checked_key(key), value) for key, value in zip(items[::2], items[1::2], strict=True)]


def _require(target: Any, kind: type) -> Any:
    if not isinstance(target, kind):
        raise pickle.UnpicklingError(f"it fills a {type(target).__name__} like a {kind.__name__}")
    return target


def _short(text: str) -> str:
    """On one line, whatever it holds."""
    return " ".join(text.split())[:60]


def _walked(raw: bytes, whole: bool) -> int:
    """Where the first pickle ends; refuse one that asks for more than its own size, or than a stack holds."""
    stream, stack = io.BytesIO(raw), _Depths()
    try:
        for opcode, argument, place in pickletools.genops(stream):
            stack.step(opcode, argument, place or 0)
    except ValueError as error:
        if whole:
            raise
        raise pickle.UnpicklingError(f"its pickle is longer than {len(raw):,} bytes") from error
    return stream.tell()


class _Depths:
    """How deep the values on the stack of an unpickler are, without the values."""

    def __init__(self) -> None:
        self.stack: list[int] = []
        self.marks: list[int] = []  # where in the stack
        self.memo: dict[int, int] = {}

    def step(self, opcode: pickletools.OpcodeInfo, argument: Any, place: int) -> None:
        name = opcode.name
        if name not in _KNOWN:
            raise pickle.UnpicklingError(f"it has an opcode {name}")
        if name in _PUTS:
            index = len(self.memo) if name == "MEMOIZE" else int(argument)
            if not 0 <= index <= place:  # pickles number what they keep, one after the other
                raise pickle.UnpicklingError(f"it keeps a value as number {index:,}")
            self.memo[index] = self.stack[-1]
        elif name in _GETS:
            self.stack.append(self.memo[int(argument)])
        elif name == "MARK":
            self.marks.append(len(self.stack))
        else:
            self._replace(opcode)
        if len(self.marks) > _DEEPEST or (self.stack and self.stack[-1] > _DEEPEST):
            raise pickle.UnpicklingError(f"it has more than {_DEEPEST} values within values")

    def _replace(self, opcode: pickletools.OpcodeInfo) -> None:
        """What an opcode takes by what it makes."""
        before, inner = opcode.stack_before, list[int]()
        if pickletools.markobject in before:
            start = self.marks.pop()
            inner = self.stack[start:]
            del self.stack[start:]
            before = before[: before.index(pickletools.markobject)]
        if len(self.stack) - len(before) < (self.marks[-1] if self.marks else 0):
            raise ValueError("it takes more values than it has")
        outer = [self.stack.pop() for _ in before][::-1]
        if opcode.name in _GROWING:
            depth = max([outer[0], *(each + 1 for each in (*outer[1:], *inner))])
        else:
            depth = max((*outer, *inner), default=0) + 1
        self.stack.extend(depth for _ in opcode.stack_after)
