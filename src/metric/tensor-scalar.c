/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The values of a tensor stand either in tensor_content, raw and little-endian, or in a repeated
 * field that depends on the type; the table below says in which. Short integers share int_val, the
 * two 16-bit floats share half_val. What lies outside of a type's range is refused: PyTorch, for
 * one, writes the bits of a float32 into half_val, which nobody can tell from a half in general.
 */
#include "tensor-scalar.h"

#include "wire-keys.h"

#include <math.h>
#include <string.h>

enum form { FORM_FLOAT, FORM_DOUBLE, FORM_SIGNED, FORM_UNSIGNED, FORM_BOOL, FORM_BITS };

struct small_float {
    int exponent_bits, mantissa_bits, bias;
    enum { IEEE, NO_INFINITY, UNSIGNED_ZERO } kind; /* how the special values are encoded */
};

struct type {
    uint8_t size;  /* bytes in tensor_content */
    uint8_t field; /* number of its repeated field */
    uint8_t wire;  /* wire type of one element there, when not packed */
    enum form form;
    struct small_float small;
};

static const struct type types[] = {
    [1] = {4, 5, KJI_WIRE_FIXED32, FORM_FLOAT},                           /* float */
    [2] = {8, 6, KJI_WIRE_FIXED64, FORM_DOUBLE},                          /* double */
    [3] = {4, 7, KJI_WIRE_VARINT, FORM_SIGNED},                           /* int32 */
    [4] = {1, 7, KJI_WIRE_VARINT, FORM_UNSIGNED},                         /* uint8 */
    [5] = {2, 7, KJI_WIRE_VARINT, FORM_SIGNED},                           /* int16 */
    [6] = {1, 7, KJI_WIRE_VARINT, FORM_SIGNED},                           /* int8 */
    [9] = {8, 10, KJI_WIRE_VARINT, FORM_SIGNED},                          /* int64 */
    [10] = {1, 11, KJI_WIRE_VARINT, FORM_BOOL},                           /* bool */
    [14] = {2, 13, KJI_WIRE_VARINT, FORM_BITS, {8, 7, 127, IEEE}},        /* bfloat16 */
    [17] = {2, 7, KJI_WIRE_VARINT, FORM_UNSIGNED},                        /* uint16 */
    [19] = {2, 13, KJI_WIRE_VARINT, FORM_BITS, {5, 10, 15, IEEE}},        /* half */
    [22] = {4, 16, KJI_WIRE_VARINT, FORM_UNSIGNED},                       /* uint32 */
    [23] = {8, 17, KJI_WIRE_VARINT, FORM_UNSIGNED},                       /* uint64 */
    [24] = {1, 18, KJI_WIRE_BYTES, FORM_BITS, {5, 2, 15, IEEE}},          /* float8 e5m2 */
    [25] = {1, 18, KJI_WIRE_BYTES, FORM_BITS, {4, 3, 7, NO_INFINITY}},    /* e4m3fn */
    [26] = {1, 18, KJI_WIRE_BYTES, FORM_BITS, {4, 3, 8, UNSIGNED_ZERO}},  /* e4m3fnuz */
    [27] = {1, 18, KJI_WIRE_BYTES, FORM_BITS, {4, 3, 11, UNSIGNED_ZERO}}, /* e4m3b11fnuz */
    [28] = {1, 18, KJI_WIRE_BYTES, FORM_BITS, {5, 2, 16, UNSIGNED_ZERO}}, /* e5m2fnuz */
};

static const struct type *type_of(const kji_tensor *tensor)
{
    if (tensor->dtype >= sizeof types / sizeof *types || types[tensor->dtype].size == 0)
        return NULL;
    return &types[tensor->dtype];
}

void kji_tensor_begin(kji_tensor *tensor)
{
    *tensor = (kji_tensor){.one_element = true};
}

static bool add_dim(kji_tensor *tensor, const unsigned char *from, const unsigned char *end)
{
    uint64_t size = 0;
    kji_field field;
    while (from < end) {
        if (!kji_wire_next(&from, end, &field))
            return false;
        if (field.key == KJI_DIM_SIZE)
            size = field.number;
    }
    tensor->one_element = tensor->one_element && size == 1;
    return true;
}

bool kji_tensor_add_shape(kji_tensor *tensor, const unsigned char *bytes, size_t size)
{
    const unsigned char *from = bytes, *end = bytes + size;
    kji_field field;
    while (from < end) {
        if (!kji_wire_next(&from, end, &field))
            return false;
        if (field.key == KJI_SHAPE_DIM && !add_dim(tensor, field.bytes, field.bytes + field.number))
            return false;
    }
    return true;
}

bool kji_tensor_add(kji_tensor *tensor, const unsigned char *bytes, size_t size)
{
    const unsigned char *from = bytes, *end = bytes + size;
    kji_field field;
    while (from < end) {
        if (!kji_wire_next(&from, end, &field))
            return false;
        if (field.key == KJI_TENSOR_DTYPE) {
            tensor->dtype = field.number;
        } else if (field.key == KJI_TENSOR_CONTENT) {
            tensor->content = field.bytes;
            tensor->content_size = field.number;
        } else if (field.key == KJI_TENSOR_SHAPE &&
                   !kji_tensor_add_shape(tensor, field.bytes, field.number)) {
            return false;
        }
    }
    return true;
}

bool kji_tensor_may_be_scalar(const kji_tensor *tensor)
{
    return tensor->one_element && type_of(tensor);
}

enum kj_event_kind kji_tensor_kind(const kji_tensor *tensor)
{
    /* string, complex64, complex128, quantized integers, resource, variant */
    const uint32_t no_numbers = 1u << 7 | 1u << 8 | 1u << 18 | 1u << 11 | 1u << 12 | 1u << 13 |
                                1u << 15 | 1u << 16 | 1u << 20 | 1u << 21;
    bool is_number = tensor->dtype > 31 || !(no_numbers >> tensor->dtype & 1);
    return tensor->one_element && is_number ? KJ_EVENT_UNDECODABLE : KJ_EVENT_TENSOR;
}

static void add_value(kji_tensor *tensor, uint64_t value)
{
    if (tensor->n_values++ == 0)
        tensor->first = value;
}

#define MALFORMED SIZE_MAX /* as n_values */

static void add_packed(kji_tensor *tensor, const struct type *type, const unsigned char *from,
                       size_t size)
{
    const unsigned char *end = from + size;
    while (from < end && tensor->n_values != MALFORMED) {
        uint64_t value = 0;
        size_t width = type->wire == KJI_WIRE_FIXED32 ? 4 : type->wire == KJI_WIRE_FIXED64 ? 8 : 1;
        if (type->wire == KJI_WIRE_VARINT) {
            if (!kji_wire_varint(&from, end, &value)) {
                tensor->n_values = MALFORMED;
                return;
            }
        } else {
            if ((size_t)(end - from) < width) {
                tensor->n_values = MALFORMED;
                return;
            }
            memcpy(&value, from, width);
            value = le64toh(value);
            from += width;
        }
        add_value(tensor, value);
    }
}

void kji_tensor_add_values(kji_tensor *tensor, const unsigned char *bytes, size_t size)
{
    const struct type *type = type_of(tensor);
    const unsigned char *from = bytes, *end = bytes + size;
    uint32_t packed = (uint32_t)type->field << 3 | KJI_WIRE_BYTES;
    uint32_t single = (uint32_t)type->field << 3 | type->wire;
    kji_field field;
    while (from < end && tensor->n_values != MALFORMED) {
        kji_wire_next(&from, end, &field);
        if (field.key == packed)
            add_packed(tensor, type, field.bytes, field.number);
        else if (field.key == single)
            add_value(tensor, field.number);
    }
}

static double small_value(const struct small_float *f, uint32_t bits)
{
    uint32_t mantissa_mask = (1u << f->mantissa_bits) - 1;
    uint32_t exponent_mask = (1u << f->exponent_bits) - 1;
    uint32_t mantissa = bits & mantissa_mask;
    uint32_t exponent = bits >> f->mantissa_bits & exponent_mask;
    bool negative = bits >> (f->mantissa_bits + f->exponent_bits) & 1;
    if (f->kind == UNSIGNED_ZERO && negative && exponent == 0 && mantissa == 0)
        return NAN;
    if (f->kind == NO_INFINITY && exponent == exponent_mask && mantissa == mantissa_mask)
        return NAN;
    double value;
    if (f->kind == IEEE && exponent == exponent_mask)
        value = mantissa ? (double)NAN : (double)INFINITY;
    else if (exponent == 0)
        value = ldexp(mantissa, 1 - f->bias - f->mantissa_bits);
    else
        value =
            ldexp(mantissa | 1u << f->mantissa_bits, (int)exponent - f->bias - f->mantissa_bits);
    return negative ? -value : value;
}

static bool signed_value(const struct type *type, uint64_t bits, double *ret_value)
{
    int64_t value = (int64_t)bits;
    int64_t limit = type->size == 8 ? INT64_MAX : ((int64_t)1 << (8 * type->size - 1)) - 1;
    if (value > limit || value < -limit - 1)
        return false;
    *ret_value = (double)value;
    return true;
}

static bool unsigned_value(const struct type *type, uint64_t bits, double *ret_value)
{
    if (type->size < 8 && bits >> (8 * type->size) != 0)
        return false;
    *ret_value = (double)bits;
    return true;
}

/* As protobuf reads int32 and uint32 fields, whatever the writer put into the upper half. */
static uint64_t field_value(const struct type *type, uint64_t bits)
{
    enum { INT_VAL = 7, HALF_VAL = 13, UINT32_VAL = 16 };
    if (type->field == INT_VAL || type->field == HALF_VAL)
        return (uint64_t)(int64_t)(int32_t)bits;
    return type->field == UINT32_VAL ? (uint32_t)bits : bits;
}

/* `bits` as its repeated field would hold them. */
static bool decode(const struct type *type, uint64_t bits, double *ret_value)
{
    switch (type->form) {
    case FORM_FLOAT: {
        uint32_t word = (uint32_t)bits;
        float value;
        memcpy(&value, &word, sizeof value);
        *ret_value = (double)value;
        return true;
    }
    case FORM_DOUBLE:
        memcpy(ret_value, &bits, sizeof *ret_value);
        return true;
    case FORM_SIGNED:
        return signed_value(type, bits, ret_value);
    case FORM_UNSIGNED:
        return unsigned_value(type, bits, ret_value);
    case FORM_BOOL:
        *ret_value = bits != 0;
        return true;
    case FORM_BITS:
        if (bits >> (8 * type->size) != 0)
            return false;
        *ret_value = small_value(&type->small, (uint32_t)bits);
        return true;
    }
    return false;
}

int kji_tensor_value(const kji_tensor *tensor, double *ret_value)
{
    const struct type *type = type_of(tensor);
    if (tensor->n_values == MALFORMED)
        return -1;
    uint64_t bits = field_value(type, tensor->first);
    if (tensor->content_size) {
        if (tensor->content_size != type->size)
            return 0;
        bits = 0;
        memcpy(&bits, tensor->content, type->size);
        bits = le64toh(bits);
        if (type->form == FORM_SIGNED && type->size < 8) {
            unsigned shift = 64 - 8u * type->size;
            bits = (uint64_t)((int64_t)(bits << shift) >> shift);
        }
    } else if (tensor->n_values != 1) {
        return 0;
    }
    return decode(type, bits, ret_value) ? 1 : 0;
}
