/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A field of characters. One curve is drawn in braille, eight dots in a character, with lines
 * between its points; several curves, or one where there is no UTF-8, as a mark for each point.
 */
#include "chart.h"

#include "output.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LABEL = 10, HEIGHT = 13, LEAST_WIDTH = 40, MOST_WIDTH = 1000 };

int cli_terminal_width(void)
{
    struct winsize size;
    const char *columns = getenv("COLUMNS");
    int width = 80;
    if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        width = size.ws_col;
    else if (columns && atoi(columns) > 0)
        width = atoi(columns);
    return width < LEAST_WIDTH ? LEAST_WIDTH : width > MOST_WIDTH ? MOST_WIDTH : width;
}

bool cli_has_utf8(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        const char *value = getenv(names[k]);
        if (value && *value)
            return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
    }
    return false;
}

/* A range that has no width gets one. */
static void widen(const double range[2], double *ret_min, double *ret_max)
{
    double margin = range[0] == range[1] ? fabs(range[0]) / 2 + (range[0] == 0) : 0;
    *ret_min = range[0] - margin;
    *ret_max = range[1] + margin;
}

void cli_chart_init(cli_chart *chart, int columns, bool braille, const double x_range[2],
                    const double y_range[2])
{
    *chart = (cli_chart){.width = columns - LABEL - 2, .height = HEIGHT, .braille = braille};
    widen(x_range, &chart->x_min, &chart->x_max);
    widen(y_range, &chart->y_min, &chart->y_max);
    size_t size = (size_t)(chart->width * chart->height);
    chart->dots = cli_check_memory(calloc(size, 1));
    chart->marks = cli_check_memory(calloc(size, 1));
}

void cli_chart_done(cli_chart *chart)
{
    free(chart->dots);
    free(chart->marks);
    *chart = (cli_chart){0};
}

/* Where `value` is among n places; halves, so that no difference of doubles overflows. */
static int place(double value, double min, double max, int n)
{
    double part = (value / 2 - min / 2) / (max / 2 - min / 2);
    int at = (int)(part * (n - 1) + 0.5);
    return at < 0 ? 0 : at >= n ? n - 1 : at;
}

static void set_dot(cli_chart *chart, int x, int y)
{
    static const unsigned char bits[4][2] = {{1, 8}, {2, 16}, {4, 32}, {64, 128}};
    chart->dots[y / 4 * chart->width + x / 2] |= bits[y % 4][x % 2];
}

void cli_chart_add(cli_chart *chart, double x, double y, char mark)
{
    int wide = chart->braille ? 2 : 1, high = chart->braille ? 4 : 1;
    int at_x = place(x, chart->x_min, chart->x_max, chart->width * wide);
    int at_y =
        chart->height * high - 1 - place(y, chart->y_min, chart->y_max, chart->height * high);
    if (chart->braille)
        set_dot(chart, at_x, at_y);
    else
        chart->marks[at_y * chart->width + at_x] = mark;
}

void cli_chart_add_line(cli_chart *chart, double x0, double y0, double x1, double y1)
{
    int wide = chart->width * 2, high = chart->height * 4;
    int from_x = place(x0, chart->x_min, chart->x_max, wide);
    int from_y = place(y0, chart->y_min, chart->y_max, high);
    int over = place(x1, chart->x_min, chart->x_max, wide) - from_x;
    int up = place(y1, chart->y_min, chart->y_max, high) - from_y;
    int n = abs(over) > abs(up) ? abs(over) : abs(up);
    for (int k = 1; k < n; k++)
        set_dot(chart, from_x + (over * k + n / 2) / n, high - 1 - (from_y + up * k / n));
}

static void put_label(const cli_chart *chart, int row, bool log_scale)
{
    double part = (double)(chart->height - 1 - row) / (chart->height - 1);
    double y = chart->y_min * (1 - part) + chart->y_max * part;
    bool labelled = row == 0 || row == chart->height - 1 || row == chart->height / 2;
    if (labelled)
        printf("%*.4g |", LABEL, log_scale ? pow(10, y) : y);
    else
        printf("%*s |", LABEL, "");
}

/* One character of the field: U+2800 and its dots, a mark, or a blank. */
static void put_cell(const cli_chart *chart, int at)
{
    unsigned dots = chart->dots[at];
    if (chart->braille && dots)
        printf("\xe2%c%c", (int)(0xa0 + (dots >> 6)), (int)(0x80 + (dots & 0x3f)));
    else
        putchar(chart->marks[at] ? chart->marks[at] : ' ');
}

static bool is_blank(const cli_chart *chart, int at)
{
    return chart->braille ? chart->dots[at] == 0 : chart->marks[at] == 0;
}

static void put_steps(const cli_chart *chart)
{
    char first[32], last[32];
    snprintf(first, sizeof first, "%.10g", chart->x_min);
    snprintf(last, sizeof last, "%.10g", chart->x_max);
    printf("%*s +", LABEL, "");
    for (int k = 0; k < chart->width; k++)
        putchar('-');
    printf("\n%*s%s%*s\n", LABEL + 2, "", first, chart->width - (int)strlen(first), last);
}

void cli_chart_print(const cli_chart *chart, bool log_scale)
{
    for (int row = 0; row < chart->height; row++) {
        put_label(chart, row, log_scale);
        int n = chart->width;
        while (n > 0 && is_blank(chart, row * chart->width + n - 1))
            n--;
        for (int k = 0; k < n; k++)
            put_cell(chart, row * chart->width + k);
        putchar('\n');
    }
    put_steps(chart);
}
