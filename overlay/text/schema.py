"""One converter for the values of all formats: the raw text of an argument -> a JSON value, by the tool's JSON schema.

The rules, in this order: a value that a schema names (``enum``, ``const``) is that value; otherwise null, integer,
number, boolean, object and array are tried where the schema allows them, then the text stands. Where the schema
allows a string as well, only text that says the same when it is written back is converted, so that ``01234`` and
``1.10`` stay strings. What cannot be converted stays a string: nothing is lost, and nothing is ever invalid JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from engine_overlay.text.nesting import MAX_NESTING
from engine_overlay.text.readings import as_number, as_truth, readings

Node = Any
"""A schema as a request gives it: a mapping, ``true``, ``false``, or something broken."""

MAX_STEPS = 10_000
"""Nodes of one schema that are followed; references that multiply each other would otherwise stop the server."""

MAX_DEPTH = 64
"""Schemas in each other, by references and combinations, that are followed."""

_ALIASES = {
    **dict.fromkeys(("str", "text", "varchar", "char", "enum"), "string"),
    **dict.fromkeys(("int", "int32", "int64", "uint", "uint32", "uint64", "long", "short", "unsigned"), "integer"),
    **dict.fromkeys(("float", "float32", "float64", "double"), "number"),
    "bool": "boolean",
    "dict": "object",
    **dict.fromkeys(("arr", "list", "sequence", "tuple"), "array"),
    "none": "null",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """A schema with its references followed and its combinations laid together.

    ``kinds``: the JSON types it allows, empty when it does not say. ``literals``: the values of ``enum`` or
    ``const``. ``branches``: the alternatives of ``anyOf`` and ``oneOf``, for choosing what is inside a value.
    """

    kinds: frozenset[str] = frozenset()
    literals: tuple[Any, ...] = ()
    properties: Mapping[str, Node] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    additional: Node = None
    prefix: Sequence[Node] = ()
    items: Node = None
    branches: tuple[Shape, ...] = ()

    @property
    def is_text(self) -> bool:
        """Whether every value of it is the text itself, so that it can be passed on before its end is known."""
        return self.kinds <= {"string"}


class Schema:
    """The parameters of one tool. ``root`` is the whole schema, in which ``$ref`` is looked up."""

    def __init__(self, root: Node) -> None:
        self._root = root
        self._shapes: dict[int, Shape] = {}
        self._steps = 0
        shape = self.shape(root)
        self.properties: Mapping[str, Node] = shape.properties or next(
            (branch.properties for branch in shape.branches if branch.properties), {}
        )
        self._additional = shape.additional

    def of(self, name: str) -> Shape | None:
        """The shape of a parameter; None when the schema does not say anything about that name."""
        node = self.properties.get(name, self._additional if isinstance(self._additional, dict) else None)
        return None if node is None else self.shape(node)

    def shape(self, node: Node) -> Shape:
        known = self._shapes.get(id(node))
        if known is None:
            known = self._shapes[id(node)] = self._resolve(node, (), 0)
        return known

    def convert(self, raw: str, shape: Shape) -> Any:
        """The JSON value of ``raw``, which is what the model wrote between the tags, trimmed as its format wants."""
        return self._conform(raw, shape)

    def conform(self, value: Any, shape: Shape) -> Any:
        """A value that is JSON already, with what is inside it converted where it does not fit the schema."""
        return self._conform(value, shape)

    # -- schemas

    def _resolve(self, node: Node, seen: tuple[str, ...], depth: int) -> Shape:
        self._steps += 1
        depth += 1
        if not isinstance(node, Mapping) or self._steps > MAX_STEPS or depth > MAX_DEPTH:
            return Shape()
        shape = _own(node)
        reference = node.get("$ref", node.get("$dynamicRef"))
        if isinstance(reference, str) and reference not in seen:
            shape = _both(shape, self._resolve(self._look_up(reference), (*seen, reference), depth))
        for part in _list(node.get("allOf")):
            shape = _both(shape, self._resolve(part, seen, depth))
        for key in ("anyOf", "oneOf"):
            branches = tuple([self._resolve(part, seen, depth) for part in _list(node.get(key))])
            if not branches:
                continue
            kinds = frozenset().union(*(branch.kinds for branch in branches))
            open_ended = any(not branch.kinds for branch in branches)
            both = _meet(shape.kinds, kinds) if not open_ended else shape.kinds
            literals = shape.literals
            if not literals and all(branch.literals for branch in branches):
                literals = tuple(value for branch in branches for value in branch.literals)
            shape = replace(shape, kinds=both, literals=literals, branches=(*shape.branches, *branches))
        return shape

    def _look_up(self, reference: str) -> Node:
        """The node that a JSON pointer such as ``#/$defs/Point`` names; None when it is not in this schema."""
        if not reference.startswith("#"):
            return None
        node = self._root
        for part in reference[1:].split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            if isinstance(node, Mapping):
                node = node.get(part)
            elif isinstance(node, list) and part.isdecimal() and int(part) < len(node):
                node = node[int(part)]
            else:
                return None
        return node

    # -- values

    def _conform(self, value: Any, shape: Shape) -> Any:
        """The value with everything in it converted; by a loop, for a value may be nested deeply."""
        made: list[Any] = [value]
        pending: list[tuple[Any, Any, Shape, int]] = [(made, 0, shape, 0)]
        while pending:
            holder, at, shape, depth = pending.pop()
            value = holder[at]
            if isinstance(value, str):
                value, typed = self._read(value, shape)
                holder[at] = value
                if typed:
                    continue
            if isinstance(value, dict):
                best, inside = _best(value, shape), dict(value)
                shapes = [(key, self._inside(best, shape, key)) for key in value]
            elif isinstance(value, list):
                best, inside = _best(value, shape), list(value)
                shapes = list(enumerate(self._items(best, shape, len(value))))
            else:
                if value is not None and shape.kinds and not (_kind(value) in shape.kinds or _is_whole(value, shape)):
                    holder[at], _ = self._read(json.dumps(value), shape)
                continue
            holder[at] = inside
            if depth < MAX_NESTING:
                pending += [(inside, key, one, depth + 1) for key, one in shapes if one is not None]
        return made[0]

    def _inside(self, best: Shape, shape: Shape, key: str) -> Shape | None:
        """The shape of a member; None when the schema does not say anything about it."""
        for one in (shape, best):
            if key in one.properties:
                return self.shape(one.properties[key])
        for one in (shape, best):
            if isinstance(one.additional, Mapping):
                return self.shape(one.additional)
        return None

    def _items(self, best: Shape, shape: Shape, count: int) -> list[Shape]:
        items = self.shape(shape.items if shape.items is not None else best.items)
        prefix = shape.prefix or best.prefix
        return [self.shape(prefix[at]) if at < len(prefix) else items for at in range(count)]

    def _read(self, raw: str, shape: Shape) -> tuple[Any, bool]:
        """(the value that ``raw`` spells, whether it has its types): an object or an array may be wrong inside."""
        kinds = shape.kinds
        if raw in shape.literals or shape.is_text:
            return raw, True
        text = raw.strip()
        others = [literal for literal in shape.literals if not isinstance(literal, str)]
        read = list(readings(text)) if others else []
        for literal in others:
            if any(_same(literal, value) for value in read):
                return literal, True
        also_text = "string" in kinds
        if "null" in kinds and text.lower() in ("null", "none"):
            return None, True
        if kinds & {"integer", "number"}:
            number = as_number(text, exact=also_text, fraction="number" in kinds)
            if number is not None:
                return number, True
        if "boolean" in kinds:
            truth = as_truth(text, bits=not also_text)
            if truth is not None:
                return truth, True
        if kinds & {"object", "array"}:
            for value in readings(text, python=not also_text):
                if isinstance(value, (dict, list)) and _kind(value) in kinds:
                    return value, False
        return raw if also_text else next(readings(text, python=False), raw), True


def dump(value: Any) -> str:
    """The JSON text of a value, in the engines' spelling; always text that can be sent as UTF-8."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        # Half a surrogate pair, which JSON can spell ("\\ud83d") and UTF-8 cannot.
        return json.dumps(value)
    return text


def refers(node: Node) -> bool:
    """Whether a schema is given by a reference, itself or in one of its combinations."""
    pending = [node]
    while pending:
        one = pending.pop()
        if isinstance(one, Mapping):
            if "$ref" in one or "$dynamicRef" in one:
                return True
            pending += [part for key in ("allOf", "anyOf", "oneOf") for part in _list(one.get(key))]
    return False


def _own(node: Mapping[str, Any]) -> Shape:
    """What a schema says itself, without its references and combinations."""
    literals = tuple(_list(node.get("enum")))
    if "const" in node:
        literals = (node["const"],)
    said = node.get("type")
    names = [said] if isinstance(said, str) else [name for name in _list(said) if isinstance(name, str)]
    kinds = {_ALIASES.get(name.strip().lower(), name.strip().lower()) for name in names}
    if not kinds and literals:
        kinds = {_kind(value) for value in literals}
    properties, items, prefix = node.get("properties"), node.get("items"), _list(node.get("prefixItems"))
    if not kinds and isinstance(properties, Mapping):
        kinds = {"object"}
    if not kinds and (isinstance(items, Mapping) or prefix):
        kinds = {"array"}
    if kinds and node.get("nullable") is True:
        kinds.add("null")
    if isinstance(items, list):
        # Before JSON Schema 2020-12 a list of items meant what prefixItems means now.
        prefix, items = items, node.get("additionalItems")
    return Shape(
        kinds=frozenset(kinds),
        literals=literals,
        properties=properties if isinstance(properties, Mapping) else {},
        required=frozenset(name for name in _list(node.get("required")) if isinstance(name, str)),
        additional=node.get("additionalProperties"),
        prefix=prefix,
        items=items,
    )


def _both(a: Shape, b: Shape) -> Shape:
    """The shape of a value that must fit both."""
    return Shape(
        kinds=_meet(a.kinds, b.kinds),
        literals=a.literals or b.literals,
        properties={**b.properties, **a.properties},
        required=a.required | b.required,
        additional=a.additional if a.additional is not None else b.additional,
        prefix=a.prefix or b.prefix,
        items=a.items if a.items is not None else b.items,
        branches=(*a.branches, *b.branches),
    )


def _meet(a: frozenset[str], b: frozenset[str]) -> frozenset[str]:
    if not a or not b:
        return a or b
    common = a & b
    if "number" in a | b and "integer" in a | b:
        common |= {"integer"}
    # Schemas that contradict each other are the client's mistake; each type that one of them names is tried.
    return common or a | b


def _best(value: Any, shape: Shape) -> Shape:
    """The alternative that a parsed value fits best."""

    def fit(branch: Shape) -> tuple[bool, bool, bool, int]:
        fits_kind = not branch.kinds or _kind(value) in branch.kinds
        if not isinstance(value, dict):
            return fits_kind, True, True, 0
        known = [key for key in value if key in branch.properties]
        tagged = all(_fits_tag(value[key], branch.properties[key]) for key in known)
        return fits_kind, tagged, branch.required <= value.keys(), len(known)

    branches = [inner for branch in shape.branches for inner in (branch, *branch.branches)]
    return max(branches, key=fit, default=Shape())


def _fits_tag(value: Any, node: Node) -> bool:
    literals = _own(node).literals if isinstance(node, Mapping) else ()
    return not literals or any(_same(value, literal) for literal in literals)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _is_whole(value: Any, shape: Shape) -> bool:
    return _kind(value) == "integer" and "number" in shape.kinds


def _same(a: Any, b: Any) -> bool:
    """Equal as JSON: 1 and 1.0 are, 1 and true are not."""
    return a == b and isinstance(a, bool) == isinstance(b, bool)
