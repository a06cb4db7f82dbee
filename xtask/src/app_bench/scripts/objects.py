"""Creates and drops numbers, strings, lists, dictionaries, instances and JSON."""

import hashlib
import json
import random
import sys

chance = random.Random(20)
digest = hashlib.sha256()


def tell(what, value):
    line = f"{what} {value!r}"
    digest.update(line.encode())
    print(line[:100])


class Node:
    def __init__(self, key):
        self.key, self.left, self.right = key, None, None

    def insert(self, key):
        node = self
        while node.key != key:
            side = "left" if key < node.key else "right"
            if getattr(node, side) is None:
                setattr(node, side, Node(key))
            node = getattr(node, side)

    def __iter__(self):
        above, node = [], self
        while above or node:
            while node:
                above.append(node)
                node = node.left
            node = above.pop()
            yield node.key
            node = node.right


def words(count):
    return ["".join(chance.choices("abcdefghij", k=chance.randrange(2, 30))) for _ in range(count)]


def strings(count):
    text = " ".join(words(count))
    lengths = {}
    for word in text.split():
        lengths.setdefault(len(word), []).append(word.upper())
    tell("strings", sorted((length, len(found), max(found)) for length, found in lengths.items()))
    tell("replaced", len(text.replace("a", "<a>")))


def dictionaries(count):
    table = {}
    for number, word in enumerate(words(count)):
        table[word] = [number, word[::-1], {"length": len(word)}]
        if number % 3 == 0:
            table.pop(chance.choice(list(table)) if number % 999 == 0 else word)
    tell("dictionaries", (len(table), sum(value[0] for value in table.values())))


def lists(count):
    rows = [[chance.randrange(1 << 70) for _ in range(chance.randrange(20))] for _ in range(count)]
    rows.sort(key=lambda row: (len(row), row))
    flat = [number for row in rows for number in row if number % 3]
    tell("lists", (len(flat), sum(flat)))


def documents(count):
    made = [
        {"id": number, "tags": words(3), "at": {"x": number / 7, "y": [number] * (number % 9)}}
        for number in range(count)
    ]
    text = json.dumps(made, indent=1, sort_keys=True)
    again = json.loads(text)
    tell("documents", (len(text), again == made, again[-1]))


def trees(count):
    root = Node(count // 2)
    for _ in range(count):
        root.insert(chance.randrange(count * 4))
    tell("trees", sum(place * key for place, key in enumerate(root)))


def blocks(count):
    kept = [b""] * 64
    for number in range(count):
        kept[number % 64] = bytes(chance.randrange(100_000))
    tell("blocks", sum(map(len, kept)))


count = int(sys.argv[1])
for turn in range(3):
    strings(count)
    dictionaries(count)
    lists(count // 5)
    documents(count // 10)
    trees(count // 5)
    blocks(count // 5)
print(digest.hexdigest())
