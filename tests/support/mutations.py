"""Model files with something wrong in them: bytes, or parts whose checksum is right."""

import hashlib
import json
import random
from functools import cache

import numpy as np

TORCH = {"F64": "float64", "F32": "float32", "I64": "int64", "I32": "int32", "U8": "uint8", "BOOL": "bool"}
NUMPY = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "I32": "<i4", "U8": "<u1", "BOOL": "?"}
DTYPES = [*NUMPY, "F16", "BF16", "F8_E4M3", "F8_E8M0", "F4", "C64", "U16", "I128", "", "float64"]
DEEP: list = []
for _ in range(300):
    DEEP = [DEEP]
VALUES = [
    *(None, True, False, 0, 1, -1, 2, 3, 5, 2**31, 2**63 - 1, 2**63, 10**30, -(10**30), 0.5, -0.5, 1e-300, 1e308),
    *(float("nan"), float("inf"), "", "x", "kl", "left", "ivf", "inf", "nan", "cuda", "cpu", "meta", "pandas", "PBDL"),
    *("array", "MaxAffine", "BregmanIndex", "../x", "\ud800", "\x00", [], {}, [1], [[]], ["a", "b"], {"tuple": [1]}),
    *({"array": 1}, {"tensor": 2}, {"number": "inf"}, {"generator": {"type": "Logistic"}}, {"device": "cuda:7"}, DEEP),
]
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, -1.0, 1.0, 1e300, -1e300, 5e-324, 1e-8]


class Parts:
    """A file in its parts: the header of ours, and tensors as (dtype, shape, bytes)."""

    def __init__(self, whole):
        length = int.from_bytes(whole[:8], "little")
        header, data = json.loads(whole[8 : 8 + length]), whole[8 + length :]
        self.about = json.loads(header.pop("__metadata__")["bregnet"])
        self.tensors = {
            name: (one["dtype"], one["shape"], data[slice(*one["data_offsets"])]) for name, one in header.items()
        }

    def is_usual(self):
        """Whether there is enough left of it to change more."""
        state, same = (self.about.get(name) for name in ("state", "same"))
        known = all(each[0] in NUMPY for each in self.tensors.values())
        return isinstance(state, dict) and len(state) > 0 and isinstance(same, dict) and known

    def whole(self, change_header=None):
        """The bytes, with a right checksum."""
        content = {name: self.about.get(name) for name in ("state", "same")}
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
        for name in sorted(self.tensors):
            dtype, shape, data = self.tensors[name]
            digest.update(f"{name} torch.{TORCH.get(dtype, dtype)} {tuple(shape)}".encode() + data)
        about = {**self.about, "digest": digest.hexdigest()} if "digest" in self.about else self.about
        header, place = {"__metadata__": {"bregnet": json.dumps(about)}}, 0
        for name, (dtype, shape, data) in self.tensors.items():
            header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [place, place + len(data)]}
            place += len(data)
        if change_header is not None:
            change_header(header)
        text = json.dumps(header).encode()
        return len(text).to_bytes(8, "little") + text + b"".join(data for _, _, data in self.tensors.values())


@cache
def _parts(whole):
    """A file in its parts, which are not to be changed."""
    return Parts(whole)


def mutated(whole, other, seed):
    """A file with something wrong, by a seed; `other` is the file of another object."""
    rng = random.Random(seed)
    if rng.random() < 0.3:
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            whole = rng.choice(BYTES)(whole, other, rng)
        return whole
    parts, others = Parts(whole), _parts(other)
    if rng.random() < 0.1:
        return parts.whole(lambda header: _change_offsets(header, rng))
    for _ in range(rng.choice((1, 1, 1, 1, 2, 3))):
        if parts.is_usual():
            rng.choice(PARTS)(parts, others, rng)
    return parts.whole()


def _between(whole, rng):
    return sorted(rng.randrange(len(whole) + 1) for _ in range(2))


def _flip(whole, other, rng):
    out = bytearray(whole)
    for _ in range(rng.choice((1, 1, 2, 8))):
        if out:
            out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def _cut(whole, other, rng):
    return whole[: rng.randrange(len(whole) + 1)]


def _insert(whole, other, rng):
    at = rng.randrange(len(whole) + 1)
    return whole[:at] + rng.randbytes(rng.choice((1, 8, 100))) + whole[at:]


def _repeat(whole, other, rng):
    first, last = _between(whole, rng)
    return whole[:last] + whole[first:]


def _remove(whole, other, rng):
    first, last = _between(whole, rng)
    return whole[:first] + whole[last:]


def _overwrite(whole, other, rng):
    first, last = _between(whole, rng)
    last = min(last, first + 64)
    return whole[:first] + rng.choice((b"\0", b"\xff", b"9", b"[", b'"')) * (last - first) + whole[last:]


def _splice(whole, other, rng):
    at = rng.randrange(len(whole) + 1)
    return whole[:at] + other[at:]


def _length(whole, other, rng):
    return (
        rng.choice((0, 1, 2**31, 2**63, 2**64 - 1, len(whole), rng.randrange(4096))).to_bytes(8, "little") + whole[8:]
    )


BYTES = [_flip, _cut, _insert, _repeat, _remove, _overwrite, _splice, _length]


def _places(value):
    """Every container in a JSON value with each of its keys."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])


def _copy(value):
    return json.loads(json.dumps(value))


def _change_value(parts, others, rng):
    places = list(_places({"state": parts.about["state"], "same": parts.about["same"]}))
    inside, key = rng.choice(places)
    old, pick = inside[key], rng.random()
    if pick < 0.2:
        inside_other, key_other = rng.choice(list(_places(others.about["state"])))
        new = _copy(inside_other[key_other])
    elif pick < 0.4:
        inside_own, key_own = rng.choice(places)
        new = _copy(inside_own[key_own])
    elif pick < 0.6 and isinstance(old, int | float):
        new = rng.choice((old + 1, old - 1, -old, old * 10, str(old), [old], float(old)))
    else:
        new = _copy(rng.choice(VALUES))
    inside[key] = new


def _drop_value(parts, others, rng):
    inside, key = rng.choice(list(_places(parts.about["state"])))
    del inside[key]


def _add_value(parts, others, rng):
    inside, key = rng.choice(list(_places(parts.about["state"])))
    if isinstance(inside, dict):
        inside[rng.choice(("more", "type", "callback", "fitted", "__class__", "object", str(key) + "_"))] = _copy(
            inside[key]
        )
    else:
        inside.insert(key, _copy(rng.choice((inside[key], rng.choice(VALUES)))))


def _change_about(parts, others, rng):
    name = rng.choice((*parts.about, "more"))
    if rng.random() < 0.3:
        parts.about.pop(name, None)
    else:
        parts.about[name] = _copy(rng.choice((*VALUES, others.about.get(name))))


def _tensor(parts, rng):
    name = rng.choice(sorted(parts.tensors))
    return name, *parts.tensors[name]


def _with_special(parts, others, rng):
    name, dtype, shape, data = _tensor(parts, rng)
    if len(data):
        values = np.frombuffer(data, NUMPY[dtype]).copy()
        with np.errstate(all="ignore"):
            some = rng.randrange(len(values)) if rng.random() < 0.7 else slice(None)
            if dtype in ("F64", "F32"):
                values[some] = np.array(rng.choice(SPECIAL)).astype(NUMPY[dtype])
            else:
                values[some] = np.array(rng.choice((-1, 0, 1, 7, 2**31 - 1, -(2**31), 10**6))).astype(NUMPY[dtype])
        parts.tensors[name] = dtype, shape, values.tobytes()


def _with_flips(parts, others, rng):
    name, dtype, shape, data = _tensor(parts, rng)
    parts.tensors[name] = dtype, shape, _flip(data, b"", rng)


def _with_shape(parts, others, rng):
    name, dtype, shape, data = _tensor(parts, rng)
    size = len(data) // max(1, int(np.prod(shape))) if len(data) else 8
    new = rng.choice(([*shape, 1], [1, *shape], shape[::-1], [int(np.prod(shape))], [0, *shape[1:]], [0, 10**15]))
    new = rng.choice((new, [2, *shape[1:]], [*shape[:-1], 3], []))
    data = (data * 4 + bytes(64))[: size * int(np.prod(new))] if 0 not in new else b""
    parts.tensors[name] = dtype, new, data.ljust(size * int(np.prod(new)) if 0 not in new else 0, b"\0")


def _with_dtype(parts, others, rng):
    name, dtype, shape, data = _tensor(parts, rng)
    if rng.random() < 0.5:
        values = np.frombuffer(data, NUMPY[dtype])
        dtype = rng.choice(list(NUMPY))
        with np.errstate(all="ignore"):
            data = values.astype(NUMPY[dtype]).tobytes()
    else:
        dtype = rng.choice(DTYPES)
    parts.tensors[name] = dtype, shape, data


def _rename(parts, others, rng):
    name, *rest = _tensor(parts, rng)
    if rng.random() < 0.5:
        del parts.tensors[name]
    parts.tensors[rng.choice((f"{name}.more", "x", "object", rng.choice(sorted(parts.tensors) or ["y"])))] = tuple(rest)


def _alias(parts, others, rng):
    name = _tensor(parts, rng)[0]
    parts.about["same"][rng.choice((name, f"{name}s"))] = rng.choice((name, "nowhere", *sorted(parts.tensors)))
    if rng.random() < 0.5:
        del parts.tensors[name]


def _borrow(parts, others, rng):
    name = _tensor(parts, rng)[0]
    if others.tensors:
        parts.tensors[name] = others.tensors[rng.choice(sorted(others.tensors))]


def _if_tensors(change):
    return lambda parts, others, rng: (change if parts.tensors else _change_value)(parts, others, rng)


PARTS = [
    *(_change_value,) * 4,
    *(_drop_value, _add_value, _change_about),
    *map(_if_tensors, (_with_special, _with_special, _with_flips, _with_shape, _with_dtype, _rename, _alias, _borrow)),
]


def _change_offsets(header, rng):
    """What safetensors itself must refuse: places that overlap, sizes that are not there, types that are none."""
    names = [name for name in header if name != "__metadata__"]
    if not names:
        header["x"] = {"dtype": "F64", "shape": [10**12], "data_offsets": [0, 8 * 10**12]}
        return
    one = header[rng.choice(names)]
    key = rng.choice(("dtype", "shape", "data_offsets"))
    if key == "dtype":
        one[key] = rng.choice(DTYPES)
    elif key == "shape":
        one[key] = rng.choice(([10**12], [-1], [2**64], [], "x", [1.5], [0], [2**32, 2**32]))
    else:
        first, last = one[key]
        one[key] = rng.choice(([last, first], [first, last + 8], [0, 0], [first - 8, last], [0, 2**60], [first], None))
