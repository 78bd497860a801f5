/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the Python package needs beside the public headers: warnings that wait until the training
 * thread fetches them. The library may warn from the control thread of a run, which must never wait
 * for the interpreter's lock, so its log hook cannot be Python code.
 */
#ifndef KAJITORI_PYTHON_BRIDGE_H
#define KAJITORI_PYTHON_BRIDGE_H

#include <kajitori.h>

/* Installs the hook. Warnings and errors are kept, up to 64 of them, the oldest are lost first. */
void kjp_log_start(void);

/* The oldest warning as text: 1, or 0 when there is none (or one is just being written). `size` >=
 * 1; a longer text is cut. */
int kjp_log_take(char *buffer, uint64_t size);

/* How many were lost since the last call. */
uint64_t kjp_log_lost(void);

#endif
