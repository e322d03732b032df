"""Copies a GGUF file with another chat template: with_template.py MODEL TEMPLATE COPY"""

import pathlib
import struct
import sys

KEY = b"tokenizer.chat_template"
STRING, ARRAY = 8, 9
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
ALIGNMENT = 32


def text_end(data, at):
    return at + 8 + struct.unpack_from("<Q", data, at)[0]


def value_end(data, kind, at):
    """Where a value of that kind ends."""
    if kind == STRING:
        return text_end(data, at)
    if kind != ARRAY:
        return at + SIZES[kind]
    kind, count = struct.unpack_from("<IQ", data, at)
    at += 12
    if kind in SIZES:
        return at + SIZES[kind] * count
    for _ in range(count):
        at = value_end(data, kind, at)
    return at


def with_template(data, template):
    """The same file, with tensors where its header's new length puts them."""
    magic, _, tensors, pairs = struct.unpack_from("<4sIQQ", data)
    assert magic == b"GGUF"
    at, head = 24, [data[:24]]
    for _ in range(pairs):
        begin, key_end = at, text_end(data, at)
        (kind,) = struct.unpack_from("<I", data, key_end)
        at = value_end(data, kind, key_end + 4)
        key = data[begin + 8 : key_end]
        assert key != b"general.alignment"
        if key == KEY:
            head.append(data[begin : key_end + 4] + struct.pack("<Q", len(template)) + template)
        else:
            head.append(data[begin:at])
    begin = at
    for _ in range(tensors):
        at = text_end(data, at)
        (dimensions,) = struct.unpack_from("<I", data, at)
        at += 4 + 8 * dimensions + 4 + 8
    head = b"".join([*head, data[begin:at]])
    return head + bytes(-len(head) % ALIGNMENT) + data[at + -at % ALIGNMENT :]


if __name__ == "__main__":
    model, template, copy = map(pathlib.Path, sys.argv[1:])
    copy.write_bytes(with_template(model.read_bytes(), template.read_bytes()))
