/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --output. Everything prints to standard output, so that is what becomes the file: a new one
 * beside it, which is renamed when it is complete, so that nobody sees half a result. What is
 * printed without end, or goes on with a cursor, is appended to the file itself.
 */
#include "events-verb.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char *final_path;
static char new_path[4200]; /* "" when there is none */

static void remove_and_die(int number)
{
    unlink(new_path);
    signal(number, SIG_DFL);
    raise(number);
}

static int cannot_write(const char *path)
{
    cli_error("cannot write %s: %s", path, strerror(errno));
    return CLI_FAILED;
}

static void catch_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
        if (signal(numbers[k], remove_and_die) == SIG_IGN)
            signal(numbers[k], SIG_IGN);
}

/* The mode of the file that is replaced, if there is one. */
static int open_new(const char *path, mode_t mode)
{
    final_path = realpath(path, NULL); /* what a link points to */
    if (!final_path)
        final_path = cli_check_memory(strdup(path));
    int n = snprintf(new_path, sizeof new_path, "%s.%ld.part", final_path, (long)getpid());
    if (n >= (int)sizeof new_path) {
        new_path[0] = 0;
        errno = ENAMETOOLONG;
        return -1;
    }
    catch_signals();
    int fd = open(new_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
        new_path[0] = 0;
        return -1;
    }
    if (mode)
        (void)fchmod(fd, mode & 07777);
    return fd;
}

int cli_events_output_begin(void)
{
    const char *path = cli_events_given.output;
    signal(SIGXFSZ, SIG_IGN); /* a limit of file sizes is an error like a full disk */
    if (!path && cli.format == CLI_NPZ && isatty(STDOUT_FILENO))
        return cli_usage("npz is no text for a terminal; give --output FILE");
    if (!path)
        return CLI_DONE;
    struct stat st = {.st_mode = 0};
    bool exists = stat(path, &st) == 0;
    bool append = cli_events_given.follow || cli_events_given.cursor;
    int fd = append || (exists && !S_ISREG(st.st_mode))
                 ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)
                 : open_new(path, exists ? st.st_mode : 0);
    if (fd < 0)
        return cannot_write(path);
    if (dup2(fd, STDOUT_FILENO) < 0)
        return cannot_write(path);
    close(fd);
    return CLI_DONE;
}

int cli_events_output_end(int status)
{
    if (!new_path[0])
        return status;
    bool written = fflush(stdout) == 0 && !ferror(stdout);
    if (!written)
        cli_error("cannot write %s", cli_events_given.output);
    if (status == CLI_DONE && written && rename(new_path, final_path) < 0)
        status = cannot_write(cli_events_given.output);
    else if (status != CLI_DONE || !written)
        unlink(new_path);
    clearerr(stdout);
    free(final_path);
    return written ? status : CLI_FAILED;
}
