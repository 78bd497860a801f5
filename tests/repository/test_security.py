# SPDX-License-Identifier: Apache-2.0
"""SECURITY.md is held to what it says: each promise has its tests, the limits are those of the sources,
and nothing that a peer says can become code."""

import ast
import pathlib
import re

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
PAGE = (TOP / "SECURITY.md").read_text()
NAMED = re.findall(r"`([\w.-]+)::(\w+)`", PAGE)


def test_each_promise_names_its_tests():
    promised = PAGE.split("## What is promised")[1].split("## Limits")[0]
    promises = re.split(r"^- ", promised, flags=re.M)[1:]
    assert len(promises) > 10
    for promise in promises:
        assert re.search(r"`[\w.-]+::\w+`", promise), promise


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_a_test_that_is_named_is_there(file, name):
    found = [path for folder in ("src", "tests") for path in (TOP / folder).glob(f"**/{file}")]
    assert len(found) == 1, file
    text = found[0].read_text()
    if file.endswith(".py"):
        assert re.search(rf"^def {name}\(", text, flags=re.M)
    else:
        assert f"static void {name}(" in text
        assert re.search(rf"(TEST|cmocka_unit_test)\({name}\)", text), f"{name} does not run"


def test_the_limits_are_those_of_the_sources():
    headers = "\n".join(path.read_text() for path in (TOP / "src/control").glob("*.h"))
    rows = re.findall(r"^\| .* \| (\d+) \| `(KJI_\w+)` \|$", PAGE, flags=re.M)
    assert len(rows) > 20
    for number, name in rows:
        value = re.search(rf"\b{name} = ([\d <*]+)", headers)
        assert value, name
        assert eval_number(value[1]) == int(number), name


def eval_number(text):
    """A number as C writes it: 8 << 20, 24 * 3600."""
    tree = ast.parse(text.strip(), mode="eval").body
    if isinstance(tree, ast.BinOp):
        left, right = ast.literal_eval(tree.left), ast.literal_eval(tree.right)
        return left << right if isinstance(tree.op, ast.LShift) else left * right
    return ast.literal_eval(tree)


def python_sources():
    return [path for folder in ("python", "examples") for path in (TOP / folder).glob("**/*.py")]


FORBIDDEN_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "code"}
FORBIDDEN_CALLS = {"eval", "exec", "__import__", "system", "popen", "loads_pickle"}


def test_python_evaluates_nothing():
    assert python_sources()
    for path in python_sources():
        for node in ast.walk(ast.parse(path.read_text())):
            where = f"{path.relative_to(TOP)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Import):
                assert not {n.name.split(".")[0] for n in node.names} & FORBIDDEN_MODULES, where
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in FORBIDDEN_MODULES, where
            if isinstance(node, ast.Call) and (node.args or node.keywords):  # not model.eval()
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                assert name not in FORBIDDEN_CALLS, where
                assert not any(k.arg == "shell" for k in node.keywords), where


# What starts a program, given as words, and the only files that may.
STARTERS = {
    "shim-main.c": {"execvp"},
    "relaunch.c": {"execvp", "posix_spawnp"},
    "remote.c": {"posix_spawnp"},
}


def test_c_starts_no_shell():
    for folder in ("src", "cli", "python", "examples"):
        for path in (TOP / folder).glob("**/*.[ch]"):
            if path.stem.endswith("-test"):
                continue
            calls = set(
                re.findall(
                    r"\b(system|popen|wordexp|dlopen|exec[lv]p?e?|execvpe|execveat|fexecve|posix_spawnp?)\s*\(",
                    re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S),
                )
            )
            assert calls <= STARTERS.get(path.name, set()), path
