/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kajitori-shim DIR LOCK-FD PROGRAM ARGUMENT…
 *
 * The parent of one trial's program. It outlives the worker that started it, so that the worker may
 * die and a new one still finds out how the program ended. docs/tune.md specifies the files in DIR.
 *
 * - LOCK-FD is DIR/lock, locked by the worker before it started us; we hold it for life and the
 *   program never sees it.
 * - We are a child subreaper: whatever the program leaves behind, also what had a session of its
 *   own or was forked twice, becomes our child and is killed before exit.json is written. So
 *   exit.json means that nothing is left.
 * - SIGTERM to us goes to the program's group; SIGUSR1 kills the group and all descendants. Only we
 *   know whether the program's pid is still its own, so only we signal it.
 */
#include "clock.h"
#include "errors.h"
#include "files.h"
#include "mem.h"
#include "number.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { EXIT_SHIM = 125, EXIT_NOT_STARTED = 127 };

/* The parent of process `pid` as /proc tells, -1 when it is gone. */
static long parent_of(const char *pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    KJI_CLEANUP(kji_freep) char *text = NULL;
    if (kji_read_file(AT_FDCWD, path, 65536, &text, NULL, NULL) < 0)
        return -1;
    const char *behind_name = strrchr(text, ')'); /* the name may hold anything */
    long parent;
    if (!behind_name || sscanf(behind_name, ") %*c %ld", &parent) != 1)
        return -1;
    return parent;
}

/* Returns how many there were, those that have ended and are not waited for included. */
static int kill_children(void)
{
    DIR *proc = opendir("/proc");
    int n = 0;
    if (!proc)
        return 0;
    for (struct dirent *entry; (entry = readdir(proc));)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' &&
            parent_of(entry->d_name) == getpid() && kill((pid_t)atol(entry->d_name), SIGKILL) == 0)
            n++;
    closedir(proc);
    return n;
}

/* Until nobody is left: each child that dies hands us its own children. One that we may not kill
 * (it is another user's) is waited for. */
static void end_descendants(void)
{
    for (;;) {
        int n = kill_children();
        do
            if (waitpid(-1, NULL, 0) < 0 && errno == ECHILD)
                return;
        while (--n > 0);
    }
}

static int write_json(int dir_fd, const char *name, const char *text)
{
    return kji_write_file_atomic(dir_fd, name, text, strlen(text), NULL);
}

static int write_start(int dir_fd, pid_t program)
{
    char text[256], time[KJI_DOUBLE_TEXT];
    snprintf(text, sizeof text, "{\"shim_pid\":%ld,\"pid\":%ld,\"pgid\":%ld,\"start_time\":%s}\n",
             (long)getpid(), (long)program, (long)program, kji_double_text(kji_wall_time(), time));
    return write_json(dir_fd, "shim.json", text);
}

static int write_exit(int dir_fd, int status, int start_errno)
{
    char text[256], time[KJI_DOUBLE_TEXT];
    snprintf(text, sizeof text, "{\"exit_code\":%d,\"signal\":%d,\"errno\":%d,\"time\":%s}\n",
             WIFEXITED(status) ? WEXITSTATUS(status) : -1,
             WIFSIGNALED(status) ? WTERMSIG(status) : 0, start_errno,
             kji_double_text(kji_wall_time(), time));
    return write_json(dir_fd, "exit.json", text);
}

/* In the child: becomes the program, or says why not. */
static _Noreturn void become(char **command, int output, int report, pid_t shim)
{
    sigset_t none;
    sigemptyset(&none);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != shim)
        _exit(EXIT_SHIM);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (dup2(output, 1) >= 0 && dup2(output, 2) >= 0)
        execvp(command[0], command);
    int why = errno;
    kji_write_all(report, &why, sizeof why, NULL);
    _exit(EXIT_NOT_STARTED);
}

static pid_t start(char **command, int output, int *ret_errno)
{
    int report[2];
    if (pipe2(report, O_CLOEXEC) < 0)
        return -1;
    pid_t shim = getpid();
    pid_t program = fork();
    if (program == 0)
        become(command, output, report[1], shim);
    close(report[1]);
    if (program > 0) {
        setpgid(program, program); /* also here: whoever comes first, the group exists now */
        if (read(report[0], ret_errno, sizeof *ret_errno) != sizeof *ret_errno)
            *ret_errno = 0;
    }
    close(report[0]);
    return program;
}

/* Waits for the program to end, handing signals on. Returns its wait status. */
static int supervise(pid_t program, const sigset_t *signals)
{
    for (;;) {
        int status;
        pid_t ended = waitpid(-1, &status, WNOHANG);
        if (ended == program)
            return status;
        if (ended > 0)
            continue; /* an orphan of the program's */
        switch (sigwaitinfo(signals, NULL)) {
        case SIGTERM:
            kill(-program, SIGTERM);
            kill(-program, SIGCONT); /* a stopped one would never see it */
            break;
        case SIGUSR1:
            kill(-program, SIGKILL);
            kill_children();
            break;
        }
    }
}

int main(int argc, char **argv)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGUSR1);
    sigaddset(&signals, SIGCHLD);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    if (argc < 4) {
        fprintf(stderr, "usage: kajitori-shim DIR LOCK-FD PROGRAM ARGUMENT...\n"
                        "Started by kajitori tune, one for each trial; not for use by hand.\n");
        return 2;
    }
    int lock = atoi(argv[2]);
    int dir_fd = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int output = openat(dir_fd, "output.log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fcntl(lock, F_SETFD, FD_CLOEXEC) < 0 || dir_fd < 0 || output < 0 ||
        prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        return EXIT_SHIM;
    int start_errno = 0;
    pid_t program = start(argv + 3, output, &start_errno);
    if (program < 0 || write_start(dir_fd, program) < 0) {
        end_descendants();
        return EXIT_SHIM;
    }
    int status = supervise(program, &signals);
    end_descendants();
    return write_exit(dir_fd, status, start_errno) < 0 ? EXIT_SHIM : 0;
}
