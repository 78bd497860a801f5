# SPDX-License-Identifier: Apache-2.0
"""The package as a whole: what importing it does, what it says about itself, what is installed."""

import importlib.metadata
import pathlib
import re
import subprocess
import sys

import pytest
from kajitori._ffi import ffi, lib

import kajitori
from kajitori import _errors

TOP = pathlib.Path(__file__).resolve().parents[2]
HEADERS = sorted((TOP / "include/kajitori").glob("*.h"))
TRAINING_SIDE = ("client.h", "error.h", "metric.h", "run.h", "value.h")


def test_import_loads_no_framework():
    code = (
        "import sys, kajitori, kajitori.keras\n"
        "names = {name.split('.')[0] for name in sys.modules}\n"
        "print(sorted(names & {'keras', 'tensorflow', 'torch', 'jax', 'numpy', 'optuna', 'tensorboard'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_a_framework_only_its_module_cannot_be_imported():
    code = (
        "import sys; sys.modules['keras'] = sys.modules['tf_keras'] = None\n"
        "import kajitori\n"
        "try:\n    import kajitori.keras\n"
        "except ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "kajitori.keras needs Keras and a backend for it: pip install keras tensorflow\n"
    )


def test_version_is_that_of_the_library_and_of_the_wheel():
    assert kajitori.__version__ == importlib.metadata.version("kajitori")


def test_every_public_function_is_bound():
    declared = set()
    for header in HEADERS:
        if header.name in TRAINING_SIDE:
            declared |= set(re.findall(r"KJ_API[^;{]*?\b(kj_\w+)\(", header.read_text()))
    assert len(declared) > 40
    assert declared - set(dir(lib)) == set()


def test_the_wheel_has_what_it_should_and_no_second_library():
    files = [str(path) for path in importlib.metadata.files("kajitori")]
    assert any(path.endswith("py.typed") for path in files)
    assert any(path.endswith("/LICENSE") for path in files)
    assert sorted(path for path in files if ".so" in path) == [
        "kajitori/_ffi.abi3.so",
        "kajitori/_step_gate.abi3.so",
    ]


@pytest.mark.parametrize("extension", ["kajitori._ffi", "kajitori._step_gate"])
def test_an_extension_exports_its_init_function_only(extension):
    path = sys.modules[extension].__file__
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True
    ).stdout
    names = {line.split()[-1] for line in listed.splitlines()}
    assert {name for name in names if not name.startswith(("PyInit_", "_cffi_pypyinit_"))} == set()


def test_each_code_becomes_its_exception():
    for name in (name for name in dir(lib) if re.fullmatch(r"KJ_E[A-Z]+", name)):
        code = getattr(lib, name)
        if not isinstance(code, int) or code >= 0 or code == lib.KJ_EMEM:
            continue
        err = _errors.new_error()
        err.code = code
        ffi.buffer(err.message)[:4] = b"why\0"
        with pytest.raises(kajitori.Error, match=r"^why$") as caught:
            _errors.check(code, err)
        assert caught.value.code == code


def test_codes_of_classes_are_all_different():
    codes = [cls.code for cls in kajitori.Error.__subclasses__()]
    assert len(codes) == len(set(codes))
