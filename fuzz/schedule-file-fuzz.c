/* SPDX-License-Identifier: Apache-2.0 */
/* A schedule with anything in it, given to a run without doors: each of its lines is a command or a
 * warning, or nothing; and the training goes on. */
#include "mem.h"
#include "run-impl.h"

#include "fuzz.h"

#include <string.h>

static int64_t n_warnings;

static void count_warning(void *userdata, int level, const char *message)
{
    (void)userdata, (void)level;
    check(strstr(message, "the-file") != NULL);
    n_warnings++;
}

static int64_t count_lines(const uint8_t *bytes, size_t size)
{
    int64_t n = 1;
    for (size_t k = 0; k < size; k++)
        n += bytes[k] == '\n';
    return n;
}

static kj_run *open_run(void)
{
    kj_run_options options = KJ_RUN_OPTIONS_INIT;
    kj_run *run = NULL;
    options.run_id = "x";
    options.runtime_dir = options.state_dir = "/dev/null/nowhere";
    kj_log_set(NULL, NULL);
    check(kj_run_open(&options, &run, NULL) == 0);
    kj_log_set(count_warning, NULL);
    return run;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    kj_run *run = open_run();
    run->schedule = (kji_schedule_file){strdup("the-file"), malloc(size + 1), size};
    memcpy(run->schedule.text, bytes, size);
    n_warnings = 0;
    kji_run_lock(run);
    kji_schedule_file_take_in(run);
    kji_run_unlock(run);
    check(run->last_seq <= count_lines(bytes, size) && n_warnings <= KJI_SCHEDULE_WARNINGS + 1);
    check((int64_t)run->n_queued <= run->last_seq && n_warnings <= run->last_seq + 1);
    kj_run_begin_step(run, 1);
    kj_run_end_epoch(run, 1);
    kj_run_close(run);
    return 0;
}
