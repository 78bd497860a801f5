/* SPDX-License-Identifier: Apache-2.0 */
/* A chart of characters: curves over steps, with axes. */
#ifndef CLI_CHART_H
#define CLI_CHART_H

#include <stdbool.h>
#include <stdint.h>

typedef struct cli_chart {
    int width, height; /* of the field of curves, in characters */
    bool braille;      /* 2 x 4 dots in a character; else marks */
    double x_min, x_max, y_min, y_max;
    unsigned char *dots; /* width * height characters */
    char *marks;         /* the same; 0: nothing */
} cli_chart;

/* Columns of the terminal on standard output, $COLUMNS, or 80; at least 40, at most 1000. */
int cli_terminal_width(void);
/* Whether the locale of the environment has UTF-8. */
bool cli_has_utf8(void);

/* An empty field between these values; a range of nothing is widened. */
void cli_chart_init(cli_chart *chart, int columns, bool braille, const double x_range[2],
                    const double y_range[2]);
void cli_chart_done(cli_chart *chart);

/* One point, and in braille the line to it from the point before. `mark` stands for its curve. */
void cli_chart_add(cli_chart *chart, double x, double y, char mark);
void cli_chart_add_line(cli_chart *chart, double x0, double y0, double x1, double y1);

/* Prints it with axes; the numbers beside it are 10 to the power of y when `log_scale`. */
void cli_chart_print(const cli_chart *chart, bool log_scale);

#endif
