/* SPDX-License-Identifier: Apache-2.0 */
/* A TensorProto as a scalar, scanned in place. Used in two passes over the same messages, since the
 * type may stand behind the values. */
#ifndef KJI_TENSOR_SCALAR_H
#define KJI_TENSOR_SCALAR_H

#include <kajitori/events.h>

#include <stdbool.h>
#include <stddef.h>

typedef struct kji_tensor {
    uint64_t dtype;
    bool one_element;             /* by its shape; no shape at all is a scalar, too */
    const unsigned char *content; /* tensor_content */
    size_t content_size;
    size_t n_values; /* found in the field that goes with dtype */
    uint64_t first;  /* the first of them: bits or integer */
} kji_tensor;

void kji_tensor_begin(kji_tensor *tensor);

/* First pass. false: malformed. Called again, it merges. */
bool kji_tensor_add(kji_tensor *tensor, const unsigned char *bytes, size_t size);

/* The part of the first pass that a shape is, for who reads the other fields himself. */
bool kji_tensor_add_shape(kji_tensor *tensor, const unsigned char *bytes, size_t size);

/* Whether the second pass is worth it. */
bool kji_tensor_may_be_scalar(const kji_tensor *tensor);

/* What it is if it is no scalar: UNDECODABLE when it should be one number, else TENSOR. */
enum kj_event_kind kji_tensor_kind(const kji_tensor *tensor);

/* Second pass, over messages that the first found well-formed. */
void kji_tensor_add_values(kji_tensor *tensor, const unsigned char *bytes, size_t size);

/* 1: *ret_value is set; 0: not one number; -1: its packed values are malformed. */
int kji_tensor_value(const kji_tensor *tensor, double *ret_value);

#endif
