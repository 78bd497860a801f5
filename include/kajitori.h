/* SPDX-License-Identifier: Apache-2.0 */
/* libkajitori: what lives inside a training process, and the client side of the channel.
 * libkajitori-engine is <kajitori/engine.h>. */
#ifndef KAJITORI_H
#define KAJITORI_H

#include <kajitori/client.h>
#include <kajitori/error.h>
#include <kajitori/event-writer.h>
#include <kajitori/events.h>
#include <kajitori/run.h>
#include <kajitori/value.h>

#endif
