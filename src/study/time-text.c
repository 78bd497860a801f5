/* SPDX-License-Identifier: Apache-2.0 */
#include "time-text.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static bool parse_digits(const char **at, int n, int *ret_number)
{
    int number = 0;
    for (int k = 0; k < n; k++, (*at)++) {
        if (**at < '0' || **at > '9')
            return false;
        number = number * 10 + (**at - '0');
    }
    *ret_number = number;
    return true;
}

static int64_t parse_fraction(const char **at)
{
    int64_t us = 0;
    if (**at != '.')
        return 0;
    (*at)++;
    int64_t unit = 100000;
    for (; **at >= '0' && **at <= '9'; (*at)++, unit /= 10)
        us += unit * (**at - '0');
    return us;
}

bool kji_time_parse(const char *text, int64_t *ret_us)
{
    struct tm tm = {0};
    const char *at = text;
    if (!parse_digits(&at, 4, &tm.tm_year) || *at++ != '-' || !parse_digits(&at, 2, &tm.tm_mon) ||
        *at++ != '-' || !parse_digits(&at, 2, &tm.tm_mday))
        return false;
    int64_t us = 0;
    if (*at == ' ' || *at == 'T') {
        at++;
        if (!parse_digits(&at, 2, &tm.tm_hour) || *at++ != ':' ||
            !parse_digits(&at, 2, &tm.tm_min) || *at++ != ':' || !parse_digits(&at, 2, &tm.tm_sec))
            return false;
        us = parse_fraction(&at);
        if (*at == '+' || *at == '-' || *at == 'Z')
            at += strlen(at);
    }
    if (*at != 0 || tm.tm_mon < 1 || tm.tm_mon > 12 || tm.tm_mday < 1 || tm.tm_mday > 31 ||
        tm.tm_hour > 23 || tm.tm_min > 59 || tm.tm_sec > 60)
        return false;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    *ret_us = (int64_t)timegm(&tm) * 1000000 + us;
    return true;
}

static void split_time(int64_t us, time_t *ret_seconds, int *ret_fraction)
{
    int64_t seconds = us / 1000000, fraction = us % 1000000;
    if (fraction < 0) {
        seconds--;
        fraction += 1000000;
    }
    *ret_seconds = (time_t)seconds;
    *ret_fraction = (int)fraction;
}

char *kji_time_text(int64_t us, char text[KJI_TIME_TEXT])
{
    time_t seconds;
    int fraction;
    struct tm tm = {0};
    split_time(us, &seconds, &fraction);
    gmtime_r(&seconds, &tm);
    /* strftime's %Y does not fill up to four digits, which reading wants */
    size_t n = (size_t)snprintf(text, KJI_TIME_TEXT, "%04d", tm.tm_year + 1900);
    n += strftime(text + n, KJI_TIME_TEXT - n, "-%m-%d %H:%M:%S", &tm);
    snprintf(text + n, KJI_TIME_TEXT - n, ".%06d", fraction);
    return text;
}

char *kji_time_local_text(int64_t us, char text[KJI_TIME_TEXT])
{
    text[0] = 0;
    if (us == KJI_TIME_NONE)
        return text;
    time_t seconds;
    int fraction;
    struct tm tm = {0};
    split_time(us, &seconds, &fraction);
    tzset();
    localtime_r(&seconds, &tm);
    strftime(text, KJI_TIME_TEXT, "%Y-%m-%d %H:%M:%S", &tm);
    return text;
}

int64_t kji_time_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}
