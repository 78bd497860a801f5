# SPDX-License-Identifier: Apache-2.0
"""Rules about the repository itself that a machine can check."""

import os
import pathlib
import re
import subprocess

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("KAJITORI_BIN", TOP / "build/kajitori")).parent

# What a layer may include: itself and these (docs/architecture.md). The engine's layers reach libkajitori by public headers only.
LAYERS = {
    "base": set(),
    "math": {"base"},
    "metric": {"base", "math"},
    "control": {"base", "math", "metric"},
    "study": {"base", "math"},
    "sampler": {"base", "math", "study"},
    "pruner": {"base", "math", "study"},
    "storage": {"base", "math", "study"},
    "engine": {"base", "math", "study", "sampler", "pruner", "storage"},
    "supervise": {"base", "math", "study", "engine"},
}
CORE_HEADERS = ["error.h", "value.h", "run.h", "client.h", "events.h", "event-writer.h"]
ENGINE_HEADERS = ["study.h", "tune.h"]


def declared(headers: list[str]) -> set[str]:
    """The functions that the public headers declare."""
    names = set()
    for header in headers:
        text = re.sub(r"/\*.*?\*/", "", (TOP / "include/kajitori" / header).read_text(), flags=re.S)
        names |= set(re.findall(r"KJ_API[^;(]*?\b(kj_\w+)\s*\(", text))
    return names


def exported(library: str) -> set[str]:
    out = subprocess.run(
        ["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True
    ).stdout
    return {
        line.split()[2].split("@")[0] for line in out.splitlines() if line.split()[1] in "TDBRW"
    }


@pytest.mark.parametrize(
    ("library", "headers"),
    [("libkajitori.so", CORE_HEADERS), ("libkajitori-engine.so", ENGINE_HEADERS)],
)
def test_a_library_exports_exactly_what_its_headers_declare(library, headers):
    names = exported(str(BUILD / "src" / library))
    assert names == declared(headers)


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_includes_only_what_stands_above_it(layer):
    owner = {path.name: path.parent.name for path in (TOP / "src").glob("*/*.h")}
    for path in (TOP / "src" / layer).glob("*.[ch]"):
        if '#include "kji-test.h"' in path.read_text():
            continue  # a test, which may look anywhere
        for name in re.findall(r'^#include "([^"]+)"', path.read_text(), flags=re.M):
            assert name in owner, f"{path.name} includes {name}, which is in no layer"
            assert owner[name] == layer or owner[name] in LAYERS[layer], (
                f"{path.name} includes {name} of {owner[name]}"
            )


def test_file_names_are_unique():
    names = [path.name for path in (TOP / "src").glob("*/*.[ch]")] + [
        path.name for path in (TOP / "cli").glob("*.[ch]")
    ]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize(
    "header",
    ["kajitori.h", "kajitori/engine.h", *(f"kajitori/{h}" for h in CORE_HEADERS + ENGINE_HEADERS)],
)
@pytest.mark.parametrize("language", [["gcc", "-std=c99"], ["g++", "-std=c++11", "-x", "c++"]])
def test_a_public_header_stands_alone_in_c99_and_cpp(header, language, tmp_path):
    source = tmp_path / "a.c"
    source.write_text(f"#include <{header}>\nint main(void) {{ return 0; }}\n")
    subprocess.run(
        [
            *language,
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-fsyntax-only",
            "-I",
            TOP / "include",
            source,
        ],
        check=True,
    )


def test_the_command_uses_public_headers_only():
    for path in (TOP / "cli").glob("*.[ch]"):
        for name in re.findall(r'^#include "([^"]+)"', path.read_text(), flags=re.M):
            assert (TOP / "cli" / name).exists(), f"{path.name} includes {name}"


def test_the_training_side_library_stays_light():
    out = subprocess.run(
        ["readelf", "-d", BUILD / "src/libkajitori.so"], capture_output=True, text=True, check=True
    ).stdout
    needed = set(re.findall(r"NEEDED.*\[(.*?)\.so", out))
    allowed = {"libc", "libm", "libjson-c", "libisal", "libpcre2-8", "ld-linux-x86-64"}
    assert needed <= allowed


def test_every_page_is_in_the_index():
    index = (TOP / "docs/README.md").read_text()
    for page in TOP.glob("docs/*.md"):
        assert page.name == "README.md" or f"]({page.name})" in index, page.name
    assert "](docs/README.md)" in (TOP / "README.md").read_text()


def test_the_pages_tell_of_every_verb_and_every_python_name():
    cli = (TOP / "docs/cli.md").read_text()
    help_text = subprocess.run(
        [BUILD / "kajitori", "help"], capture_output=True, text=True, check=True
    ).stdout
    verbs = re.findall(r"^  ([a-z]+) +\w", help_text, flags=re.M)
    assert {"stop", "version"} <= set(verbs)
    assert [verb for verb in verbs if not re.search(rf"^\|.*`{verb}\b", cli, flags=re.M)] == []
    page = (TOP / "docs/python.md").read_text()
    source = (TOP / "python/kajitori/__init__.py").read_text()
    (listed,) = re.findall(r"^__all__ = \[(.*?)\]", source, flags=re.M | re.S)
    names = re.findall(r'"(\w+)"', listed)
    assert "Run" in names
    assert [name for name in names if not re.search(rf"\b{name}\b", page)] == []


def test_links_in_the_documents_lead_somewhere():
    for page in [*TOP.glob("*.md"), *TOP.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(TOP)} links to {target}"


@pytest.mark.parametrize("page", ["traps.md", "events-cases.md"])
def test_the_tests_that_show_a_case_exist(page):
    """Each row of these pages names tests that exist, or says that there are none."""
    rows = re.findall(r"^\|.*\| (.*) \|$", (TOP / "docs" / page).read_text(), flags=re.M)
    shown = [row for row in rows if row not in ("shown by", "---")]
    assert len(shown) > 50
    named = 0
    for cell in shown:
        tests = re.findall(r"`([^`:]+)::(\w+)`", cell)
        assert tests or cell.startswith(("none", "the same")), cell
        for file, name in tests:
            definition = rf"^(?:def|static void) {name}\("
            assert re.search(definition, (TOP / file).read_text(), flags=re.M), f"{file}::{name}"
            named += 1
    assert named > 50
