# SPDX-License-Identifier: Apache-2.0
"""Writes the C source of the extension module ``kajitori._ffi`` from the public headers.

The C preprocessor flattens ``bridge.h`` (which includes ``<kajitori.h>``) with empty stand-ins for
the standard headers; cffi reads the result as declarations. So the headers are the binding: what
they declare is there in Python, and nothing is listed twice. Only the functions that C calls in
Python are declared here.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

from cffi import FFI

HERE = Path(__file__).resolve().parent

CALLED_FROM_C = """
extern "Python" {
    int kjp_param_get(void *userdata, kj_value *ret_value, kj_error *err);
    int kjp_param_set(void *userdata, const kj_value *value, kj_error *err);
    int kjp_verb_run(void *userdata, kj_call *call, kj_error *err);
    int kjp_journal_line(void *userdata, const char *json_line);
    int kjp_look(void *userdata);
    int kjp_tag(void *userdata, const kj_tag_info *tag);
    int kjp_file(void *userdata, const kj_file_info *file);
    int kjp_damage(void *userdata, const kj_damage *damage);
}
"""


def flatten(compiler: list[str], header: Path, include: Path) -> str:
    """The declarations of `header` and of all it includes, without macros and attributes."""
    command = [
        *compiler,
        *("-E", "-P", "-nostdinc", "-DKJ_API="),
        *("-I", str(HERE / "stubs"), "-I", str(include)),
        str(header),
    ]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--header", type=Path, required=True)
    parser.add_argument("--include", type=Path, required=True, help="folder of kajitori.h")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("compiler", nargs="+", help="the C compiler, as one or more words")
    args = parser.parse_args()

    ffi = FFI()
    ffi.cdef(flatten(args.compiler, args.header, args.include) + CALLED_FROM_C)
    ffi.set_source("kajitori._ffi", f'#include "{args.header.name}"', py_limited_api=True)
    ffi.emit_c_code(str(args.output))


if __name__ == "__main__":
    main()
