/* SPDX-License-Identifier: Apache-2.0 */
/* libkajitori-engine: studies, samplers, pruners, storages, and the worker that runs trials. */
#ifndef KAJITORI_ENGINE_H
#define KAJITORI_ENGINE_H

#include <kajitori/study.h>
#include <kajitori/tune.h>

#endif
