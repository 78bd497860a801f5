/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A number is digits * 10^exponent with at most 37 digits in an __int128. Before two numbers are
 * subtracted they are brought to one exponent; where that would take more than 37 digits, the end
 * of the smaller one is cut, beyond the 28 digits of the difference that are kept.
 */
#include "decimal.h"

#include "number.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__extension__ typedef __int128 int128;

enum { KEPT_DIGITS = 28, MAX_DIGITS = 37 };

typedef struct decimal {
    int128 digits;
    int exponent;
} decimal;

static decimal from_double(double value)
{
    char text[KJI_DOUBLE_TEXT];
    decimal d = {0, 0};
    bool negative = false, fraction = false;
    for (const char *c = kji_double_text(value, text); *c; c++) {
        if (*c == '-') {
            negative = true;
        } else if (*c == '.') {
            fraction = true;
        } else if (*c == 'e') {
            d.exponent += atoi(c + 1);
            break;
        } else {
            d.digits = d.digits * 10 + (*c - '0');
            d.exponent -= fraction;
        }
    }
    if (negative)
        d.digits = -d.digits;
    while (d.digits != 0 && d.digits % 10 == 0) {
        d.digits /= 10;
        d.exponent++;
    }
    if (d.digits == 0)
        d.exponent = 0;
    return d;
}

static int count_digits(int128 digits)
{
    int n = 0;
    for (; digits != 0; digits /= 10)
        n++;
    return n;
}

/* To KEPT_DIGITS digits, half to even. */
static decimal rounded(decimal d)
{
    int surplus = count_digits(d.digits) - KEPT_DIGITS;
    if (surplus <= 0)
        return d;
    int128 unit = 1;
    for (int k = 0; k < surplus; k++)
        unit *= 10;
    int128 rest = d.digits % unit;
    d.digits /= unit;
    d.exponent += surplus;
    int sign = rest < 0 ? -1 : 1;
    int128 twice = 2 * rest * sign;
    if (twice > unit || (twice == unit && d.digits % 2 != 0))
        d.digits += sign;
    return d;
}

static decimal shifted(decimal d, int exponent)
{
    for (; d.exponent > exponent && d.digits != 0; d.exponent--)
        d.digits *= 10;
    for (; d.exponent < exponent && d.digits != 0; d.exponent++)
        d.digits /= 10;
    d.exponent = exponent;
    return d;
}

static decimal subtract(decimal a, decimal b)
{
    if (a.digits == 0)
        return (decimal){-b.digits, b.exponent};
    if (b.digits == 0)
        return a;
    decimal upper = a.exponent < b.exponent ? b : a;
    int exponent = a.exponent < b.exponent ? a.exponent : b.exponent;
    int lowest = upper.exponent - (MAX_DIGITS - count_digits(upper.digits));
    if (exponent < lowest)
        exponent = lowest;
    decimal x = shifted(a, exponent), y = shifted(b, exponent);
    return rounded((decimal){x.digits - y.digits, exponent});
}

/* The exponent of the first digit. */
static int magnitude(decimal d)
{
    return d.exponent + count_digits(d.digits) - 1;
}

/* Whether range / step >= 10^KEPT_DIGITS, for range > 0, step > 0. */
static bool has_too_many_steps(decimal range, decimal step)
{
    int difference = magnitude(range) - magnitude(step);
    if (difference != KEPT_DIGITS)
        return difference > KEPT_DIGITS;
    int n = MAX_DIGITS;
    return shifted(range, magnitude(range) - n + 1).digits >=
           shifted(step, magnitude(step) - n + 1).digits;
}

/* range mod step for range >= 0, step > 0; false when there are too many steps. */
static bool remainder_of(decimal range, decimal step, decimal *ret_rest)
{
    if (range.digits == 0) {
        *ret_rest = range;
        return true;
    }
    if (has_too_many_steps(range, step))
        return false;
    if (magnitude(range) < magnitude(step)) {
        *ret_rest = range;
        return true;
    }
    /* From here step has no digit in front of range's first: shifting it to range's exponent, when
     * that is the lower one, takes at most KEPT_DIGITS digits. */
    if (range.exponent <= step.exponent) {
        *ret_rest = (decimal){range.digits % shifted(step, range.exponent).digits, range.exponent};
        return true;
    }
    int128 rest = range.digits % step.digits;
    for (int gap = range.exponent - step.exponent; gap > 0; gap--)
        rest = rest * 10 % step.digits;
    *ret_rest = (decimal){rest, step.exponent};
    return true;
}

static double to_double(decimal d)
{
    char digits[44], text[64];
    int n = sizeof digits;
    digits[--n] = 0;
    bool negative = d.digits < 0;
    int128 rest = negative ? -d.digits : d.digits;
    do
        digits[--n] = (char)('0' + (int)(rest % 10));
    while ((rest /= 10) != 0);
    snprintf(text, sizeof text, "%s%se%d", negative ? "-" : "", digits + n, d.exponent);
    double value = 0;
    kji_parse_double(text, strlen(text), &value);
    return value;
}

bool kji_decimal_last_step(double low, double high, double step, double *ret_high)
{
    decimal bottom = from_double(low), rest;
    decimal range = subtract(from_double(high), bottom);
    if (!remainder_of(range, from_double(step), &rest))
        return false;
    decimal steps = subtract(range, rest), minus_steps = {-steps.digits, steps.exponent};
    *ret_high = rest.digits == 0 ? high : to_double(subtract(bottom, minus_steps));
    return true;
}

bool kji_decimal_range_below(double low, double high, double step)
{
    decimal range = subtract(from_double(high), from_double(low));
    return subtract(range, from_double(step)).digits < 0;
}
