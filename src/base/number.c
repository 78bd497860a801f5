/* SPDX-License-Identifier: Apache-2.0 */
/*
 * strtod and printf follow the locale that the host program has set (a comma as decimal point in
 * German, other digits' separators elsewhere). Parsing goes through a private "C" locale; printing
 * maps whatever stands for the point back to ".".
 */
#include "number.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;
static locale_t c_locale;

static void make_c_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

static double parse_c(const char *text, char **ret_end)
{
    pthread_once(&c_locale_once, make_c_locale);
    return c_locale ? strtod_l(text, ret_end, c_locale) : strtod(text, ret_end);
}

bool kji_parse_double(const char *text, size_t size, double *ret_value)
{
    char copy[400];
    if (size == 0 || size >= sizeof copy || memchr(text, 0, size))
        return false;
    memcpy(copy, text, size);
    copy[size] = 0;
    if (copy[strspn(copy, "0123456789+-.eEnNaAiIfFtTyY")] != 0)
        return false;
    char *end;
    double value = parse_c(copy, &end);
    if (end != copy + size)
        return false;
    *ret_value = value;
    return true;
}

bool kji_parse_int64(const char *text, size_t size, int64_t *ret_value)
{
    char copy[32];
    if (size == 0 || size >= sizeof copy)
        return false;
    memcpy(copy, text, size);
    copy[size] = 0;
    if (strlen(copy) != size || copy[strspn(copy, "0123456789+-")] != 0)
        return false;
    char *end;
    errno = 0;
    long long value = strtoll(copy, &end, 10);
    if (end != copy + size || errno != 0)
        return false;
    *ret_value = value;
    return true;
}

/* printf's "%.*e", with "." for the locale's decimal point, which may be several bytes. */
static void print_c(char *text, size_t room, int precision, double value)
{
    snprintf(text, room, "%.*e", precision, value);
    char *to = text;
    bool in_point = false;
    for (const char *from = text; *from; from++) {
        bool known = strchr("0123456789+-e", *from) != NULL;
        if (known || !in_point)
            *to++ = known ? *from : '.';
        in_point = !known;
    }
    *to = 0;
}

/* Makes the last digit of "d.ddde±xx" one more; not that of 9.99. */
static void round_up(char *text)
{
    for (char *digit = strchr(text, 'e') - 1; digit >= text; digit--) {
        if (*digit >= '0' && *digit < '9') {
            ++*digit;
            return;
        }
        if (*digit == '9')
            *digit = '0';
    }
}

/* The shortest one that reads back, as "%e" has it. Below a power of two the doubles are closer to
 * one another than above it, so there the nearest text of 16 digits may belong to the next one
 * below, and the one above it be right. */
static void print_shortest(char *text, size_t room, double value)
{
    for (int precision = 0; precision <= 15; precision++) {
        print_c(text, room, precision, value);
        if (parse_c(text, NULL) == value)
            return;
    }
    round_up(text);
    if (parse_c(text, NULL) != value)
        print_c(text, room, 16, value);
}

char *kji_double_text(double value, char text[KJI_DOUBLE_TEXT])
{
    if (isnan(value))
        return strcpy(text, "nan");
    if (isinf(value))
        return strcpy(text, value < 0 ? "-inf" : "inf");
    char shortest[40];
    print_shortest(shortest, sizeof shortest, value);
    /* shortest is "[-]d[.ddd]e±xx": digits and exponent, laid out anew as Python does. */
    const char *from = shortest;
    char *to = text;
    if (*from == '-')
        *to++ = *from++;
    char digits[20];
    int n_digits = 0;
    for (; *from != 'e'; from++)
        if (*from != '.')
            digits[n_digits++] = *from;
    int exponent = atoi(from + 1);
    if (exponent < -4 || exponent >= 16) {
        *to++ = digits[0];
        if (n_digits > 1) {
            *to++ = '.';
            memcpy(to, digits + 1, (size_t)n_digits - 1);
            to += n_digits - 1;
        }
        snprintf(to, 8, "e%+03d", exponent);
        return text;
    }
    int point = exponent + 1; /* digits before the point */
    if (point <= 0)
        sprintf(to, "0.%.*s%.*s", -point, "000", n_digits, digits);
    else if (n_digits <= point)
        sprintf(to, "%.*s%.*s.0", n_digits, digits, point - n_digits, "000000000000000");
    else
        sprintf(to, "%.*s.%.*s", point, digits, n_digits - point, digits + point);
    return text;
}
