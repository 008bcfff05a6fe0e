"""Nodes of a syntax tree by line, against a walk of the whole tree."""

from __future__ import annotations

import ast

import pytest

from patchwright.audit import nodes

SOURCE = '''\
import os

@wraps(
    first
)
@lru_cache
def decorated(a=[x for x in os.environ if x]):
    if a and not is_sm120(a):
        return f"{a!r}: {is_sm120(a):>{width}}"
    with open(is_sm120) as file, lock:
        value = {"is_sm120": lambda y: y.is_sm120}
    try:
        pass
    except OSError as error:
        print(error)
    match value:
        case {"kind": "one"} if is_sm120:
            text = """first
            is_sm120"""
            said = (
                f"""
                {is_sm120}
                """
                f"{value}"
            )


class Owner:
    other: int = 1

    async def method(self):
        async for part in is_sm120_not: await part
        return is_sm120
'''


def named(found: list[ast.AST], name: str) -> list[ast.AST]:
    wanted = [
        node
        for node in found
        if name in (getattr(node, "id", ""), getattr(node, "attr", ""), getattr(node, "value", ""))
    ]
    assert wanted
    return wanted


def test_the_nodes_on_the_lines_of_a_name_are_those_that_a_walk_finds_in_its_order() -> None:
    tree = ast.parse(SOURCE)
    lines = nodes.lines_of(SOURCE.encode(), "is_sm120")
    found = list(nodes.on_lines(tree, lines))
    assert named(found, "is_sm120") == named(list(ast.walk(tree)), "is_sm120")


def test_what_spans_no_line_asked_for_is_passed_over() -> None:
    tree = ast.parse(SOURCE)
    found = list(nodes.on_lines(tree, (4,)))
    assert [n.id for n in found if isinstance(n, ast.Name) and n.lineno == 4] == ["first"]
    assert not any(isinstance(n, ast.ClassDef) for n in found)
    assert "method" not in {n.name for n in found if isinstance(n, ast.AsyncFunctionDef)}


def test_the_way_up_from_every_node_is_that_of_a_map_of_parents() -> None:
    tree = ast.parse(SOURCE)
    parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if not hasattr(node, "lineno"):
            continue
        way: list[ast.AST] = []
        at: ast.AST | None = node
        while at is not None:
            way.append(at)
            at = parents.get(id(at))
        assert nodes.around(tree, node) == way


def test_a_node_of_another_tree_has_no_way_up() -> None:
    assert nodes.around(ast.parse(SOURCE), ast.parse("x").body[0]) == []


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_the_lines_of_a_word_are_those_that_the_parser_counts(newline: str) -> None:
    source = newline.join(["a = 1", "is_sm120 = a.is_sm120", "is_sm120x = _is_sm120", "is_sm120"])
    assert nodes.lines_of(source.encode(), "is_sm120") == [2, 4]
    assert ast.parse(source.encode()).body[-1].lineno == 4
