/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handler may run in any thread at any moment, so it touches nothing but atomic words, and
 * wakes whoever serves the doors by a write to an eventfd; the command is sent from there. What the
 * signal did before is kept in `slots`, for good: some other handler may have kept ours as the one
 * to hand on to, and call it long after the run. When a later run finds such a handler in place,
 * each would hand on to the other for ever; who comes back to us that way gets what the handler was
 * put in the place of.
 *
 * SA_RESTART: a first signal asks for nothing that a system call of the program should be broken
 * off for. Where the next one goes to the handler from before, that one's own choice is put in
 * force: Python's comes without, so that KeyboardInterrupt gets out of a blocking read.
 */
#include "door-signal.h"

#include "errors.h"
#include "json.h"
#include "mem.h"
#include "run-impl.h"
#include "text-line.h"

#include <ctype.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* Those that end a program by default, and that no fault of the program raises. */
static const struct {
    const char *name;
    int number;
} known[] = {{"HUP", SIGHUP},   {"INT", SIGINT},   {"QUIT", SIGQUIT},
             {"TERM", SIGTERM}, {"USR1", SIGUSR1}, {"USR2", SIGUSR2},
             {"ALRM", SIGALRM}, {"XCPU", SIGXCPU}, {"PWR", SIGPWR}};
enum { N_KNOWN = sizeof known / sizeof *known };

typedef struct signal_slot {
    struct sigaction before; /* the newest run */
    struct sigaction below;  /* before that, when it was another */
    bool has_below;          /* then `before` may hand on to us */
    bool is_known;           /* there was a run */
    int handing_on;          /* atomic: the thread that is in `before`, 0: none */
    bool is_ending;          /* constant while the handler is installed by a run */
    int n_came;              /* atomic, all below: of this run */
    int is_caught;           /* and its command not sent yet */
    int pid;                 /* who sent it, -1: not known */
    int64_t uid;
} signal_slot;

static signal_slot slots[N_KNOWN];
static kj_run *owner; /* atomic: the run that has the signals */
static pid_t owner_pid;
static int n_inside; /* atomic: handlers that may look at `owner` */

static signal_slot *find_slot(int number)
{
    for (size_t k = 0; k < N_KNOWN; k++)
        if (known[k].number == number)
            return &slots[k];
    return NULL;
}

static const char *signal_name(int number)
{
    return known[find_slot(number) - slots].name;
}

static void on_signal(int number, siginfo_t *info, void *context);

static bool is_in_place(int number, struct sigaction *ret_now)
{
    sigaction(number, NULL, ret_now);
    return ret_now->sa_flags & SA_SIGINFO && ret_now->sa_sigaction == on_signal;
}

static void install(int number, const signal_slot *slot, int flags)
{
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK | flags,
                               .sa_mask = slot->before.sa_mask};
    action.sa_sigaction = on_signal;
    sigaction(number, &action, NULL);
}

static void act_by_default(int number)
{
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigaction(number, &action, NULL);
    kill(getpid(), number); /* it comes when the handler returns, if not before */
}

static void act_as(const struct sigaction *before, int number, siginfo_t *info, void *context)
{
    if (before->sa_flags & SA_SIGINFO)
        before->sa_sigaction(number, info, context);
    else if (before->sa_handler == SIG_DFL)
        act_by_default(number);
    else if (before->sa_handler != SIG_IGN)
        before->sa_handler(number);
}

static void act_as_before(signal_slot *slot, int number, siginfo_t *info, void *context)
{
    int outer = __atomic_exchange_n(&slot->handing_on, gettid(), __ATOMIC_RELAXED);
    act_as(&slot->before, number, info, context);
    __atomic_store_n(&slot->handing_on, outer, __ATOMIC_RELAXED);
}

static bool has_come_back(const signal_slot *slot)
{
    return slot->has_below && __atomic_load_n(&slot->handing_on, __ATOMIC_RELAXED) == gettid();
}

static void note(signal_slot *slot, const siginfo_t *info, kj_run *run)
{
    bool has_sender = info->si_code <= 0; /* a process, not the kernel */
    __atomic_store_n(&slot->pid, has_sender ? info->si_pid : -1, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->uid, has_sender ? (int64_t)info->si_uid : -1, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->is_caught, 1, __ATOMIC_RELEASE);
    kji_helper_alarm(&run->helper);
}

/* For whom the signal is: 1 the run, 2 what was there before, 3 the system. */
static int take_turn(signal_slot *slot, const siginfo_t *info, int number)
{
    int turn = 2;
    __atomic_fetch_add(&n_inside, 1, __ATOMIC_SEQ_CST);
    kj_run *run = __atomic_load_n(&owner, __ATOMIC_SEQ_CST);
    if (run && owner_pid == getpid()) {
        turn = slot->is_ending ? __atomic_add_fetch(&slot->n_came, 1, __ATOMIC_RELAXED) : 1;
        if (turn == 1)
            note(slot, info, run);
    }
    struct sigaction now;
    if (turn == 1 && slot->is_ending && is_in_place(number, &now))
        install(number, slot, slot->before.sa_flags & SA_RESTART);
    __atomic_fetch_sub(&n_inside, 1, __ATOMIC_SEQ_CST);
    return turn;
}

static void on_signal(int number, siginfo_t *info, void *context)
{
    int errnum = errno;
    signal_slot *slot = find_slot(number);
    bool comes_back = slot && has_come_back(slot);
    int turn = slot && !comes_back ? take_turn(slot, info, number) : 1;
    if (comes_back)
        act_as(&slot->below, number, info, context);
    else if (turn == 2)
        act_as_before(slot, number, info, context);
    else if (turn > 2)
        act_by_default(number);
    errno = errnum;
}

static void keep_before(signal_slot *slot, const struct sigaction *now)
{
    bool is_another = slot->is_known && now->sa_sigaction != slot->before.sa_sigaction;
    if (is_another)
        slot->below = slot->before;
    slot->has_below |= is_another;
    slot->before = *now;
    slot->is_known = true;
    __atomic_store_n(&slot->handing_on, 0, __ATOMIC_RELAXED); /* who was in it jumped out */
}

static void install_all(kj_run *run)
{
    for (size_t k = 0; k < run->signals.n; k++) {
        const kji_signal *item = &run->signals.item[k];
        signal_slot *slot = find_slot(item->number);
        struct sigaction now;
        if (!is_in_place(item->number, &now))
            keep_before(slot, &now);
        slot->is_ending = item->is_ending;
        __atomic_store_n(&slot->n_came, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&slot->is_caught, 0, __ATOMIC_RELAXED);
        install(item->number, slot, SA_RESTART);
    }
}

int kji_signals_leave_to_all_ranks(kj_run *run, kj_error *err)
{
    kji_signals *signals = &run->signals;
    size_t n_left = 0;
    int r = 0;
    if (signals->are_ours) /* the helper reads them */
        return 0;
    for (size_t k = 0; k < signals->n; k++) {
        kji_signal item = signals->item[k];
        if (!item.is_for_all_ranks || !run->rank_refusal) {
            signals->item[n_left++] = item;
            continue;
        }
        if (r >= 0)
            r = kji_fail(err, KJ_EUNSUPPORTED, "signals=\"%.100s\": SIG%s stays as it was: %s",
                         signals->spec, signal_name(item.number), run->rank_refusal);
        free(item.command);
    }
    signals->n = n_left;
    return r;
}

int kji_signals_take(kj_run *run, kj_error *err)
{
    kj_run *nobody = NULL;
    if (run->signals.n == 0 || run->signals.are_ours || !run->helper.is_running)
        return 0;
    if (!__atomic_compare_exchange_n(&owner, &nobody, run, false, __ATOMIC_SEQ_CST,
                                     __ATOMIC_SEQ_CST))
        return kji_fail(err, KJ_EBUSY,
                        "signals=\"%.100s\": another run of this process has the signals",
                        run->signals.spec);
    owner_pid = getpid();
    __atomic_store_n(&run->signals.are_ours, true, __ATOMIC_RELEASE);
    install_all(run);
    return 0;
}

static void restore_all(const kj_run *run)
{
    for (size_t k = 0; k < run->signals.n; k++) {
        int number = run->signals.item[k].number;
        struct sigaction now;
        if (is_in_place(number, &now))
            sigaction(number, &find_slot(number)->before, NULL);
    }
}

void kji_signals_give_back(kj_run *run)
{
    if (!run->signals.are_ours)
        return;
    __atomic_store_n(&run->signals.are_ours, false, __ATOMIC_RELAXED);
    __atomic_store_n(&owner, NULL, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&n_inside, __ATOMIC_SEQ_CST))
        sched_yield();
    restore_all(run);
}

void kji_signals_forked(kj_run *run)
{
    if (!run->signals.are_ours)
        return;
    __atomic_store_n(&run->signals.are_ours, false, __ATOMIC_RELAXED);
    __atomic_store_n(&owner, NULL, __ATOMIC_SEQ_CST);
    __atomic_store_n(&n_inside, 0, __ATOMIC_SEQ_CST); /* of threads that are not here */
    restore_all(run);
}

static void submit(kj_run *run, const kji_signal *item, const signal_slot *slot)
{
    kji_text_line line;
    kji_command *command = NULL;
    struct json_object *record = NULL;
    kj_error err = KJ_ERROR_INIT;
    kji_sender sender = {.door = "signal",
                         .uid = __atomic_load_n(&slot->uid, __ATOMIC_RELAXED),
                         .pid = __atomic_load_n(&slot->pid, __ATOMIC_RELAXED)};
    kji_text_line_parse(item->command, strlen(item->command), &line, NULL);
    int r = kji_command_from_text(&line, &command, &err);
    if (command && !command->reason)
        command->reason = kji_format("SIG%s", signal_name(item->number));
    if (command)
        r = kji_run_submit(run, command, &sender, r, &record, &err);
    if (r < 0)
        kji_run_warn(run, "run %s: SIG%s=%s: %s", run->id, signal_name(item->number), item->command,
                     err.message);
    json_object_put(record);
}

void kji_signals_submit(kj_run *run)
{
    bool are_ours = __atomic_load_n(&run->signals.are_ours, __ATOMIC_ACQUIRE);
    for (size_t k = 0; are_ours && k < run->signals.n; k++) {
        signal_slot *slot = find_slot(run->signals.item[k].number);
        if (!__atomic_exchange_n(&slot->is_caught, 0, __ATOMIC_ACQUIRE))
            continue;
        kji_run_lock_second(run);
        submit(run, &run->signals.item[k], slot);
        kji_run_unlock(run);
    }
}

/* The end of the item that begins at `text`: a comma outside of quotes, or the end. */
static const char *item_end(const char *text)
{
    bool in_quotes = false;
    for (; *text && (in_quotes || *text != ','); text++) {
        if (in_quotes && *text == '\\' && text[1])
            text++;
        else if (*text == '"')
            in_quotes = !in_quotes;
    }
    return text;
}

static int find_number(const char *name, size_t size)
{
    if (size > 3 && strncasecmp(name, "SIG", 3) == 0)
        return find_number(name + 3, size - 3);
    for (size_t k = 0; k < N_KNOWN; k++)
        if (strlen(known[k].name) == size && strncasecmp(known[k].name, name, size) == 0)
            return known[k].number;
    return 0;
}

static bool ends_training(const kji_command *command)
{
    static const char *const ending[] = {"stop", "abort", "prune"};
    for (size_t k = 0; k < sizeof ending / sizeof *ending; k++)
        if (strcmp(command->verb_name, ending[k]) == 0)
            return true;
    const char *level = kji_json_string(command->args, "level");
    return strcmp(command->verb_name, "pause") == 0 && level && strcmp(level, "leave") == 0;
}

/* Checks the command as far as that can be done before the program has registered its verbs. */
static int read_command(kji_signal *item, const char *text, size_t size, kj_error *err)
{
    kji_text_line line;
    kji_command *command = NULL;
    int r = kji_text_line_parse(text, size, &line, err);
    if (r == 0)
        return kji_fail(err, KJ_EARG, "no command behind \"=\"");
    if (r > 0)
        r = kji_command_from_text(&line, &command, err);
    if (r >= 0) {
        const kji_own_verbs none = {0};
        const kji_verb *verb = kji_verb_find(&none, command->verb_name);
        item->is_for_all_ranks = verb && verb->is_for_all_ranks;
        item->is_ending = ends_training(command);
        item->command = strndup(text, size);
        r = item->command ? 0 : kji_fail_memory(err);
    }
    kji_command_free(command);
    return r < 0 ? r : 0;
}

static void trim(const char **begin, const char **end)
{
    while (*begin < *end && isspace((unsigned char)**begin))
        ++*begin;
    while (*end > *begin && isspace((unsigned char)(*end)[-1]))
        --*end;
}

/* NAME or NAME=COMMAND. */
static int read_item(const char *begin, const char *end, kji_signals *signals, kj_error *err)
{
    trim(&begin, &end);
    const char *equals = memchr(begin, '=', (size_t)(end - begin));
    const char *name_end = equals ? equals : end, *command = equals ? equals + 1 : "stop";
    trim(&begin, &name_end);
    kji_signal *item = &signals->item[signals->n];
    *item = (kji_signal){.number = find_number(begin, (size_t)(name_end - begin))};
    if (!item->number)
        return kji_fail(err, KJ_EARG,
                        "no signal \"%.*s\"; there are HUP, INT, QUIT, TERM, USR1, USR2, ALRM, "
                        "XCPU, PWR (a value with a comma in it is put in double quotes)",
                        (int)(name_end - begin < 40 ? name_end - begin : 40), begin);
    for (size_t k = 0; k < signals->n; k++)
        if (signals->item[k].number == item->number)
            return kji_fail(err, KJ_EARG, "%s is there twice", signal_name(item->number));
    signals->n++;
    return read_command(item, command, equals ? (size_t)(end - command) : strlen(command), err);
}

int kji_signals_parse(const char *spec, kji_signals *ret_signals, kj_error *err)
{
    kji_signals signals = {0};
    kj_error why = KJ_ERROR_INIT;
    if (!spec || !*spec)
        return 0;
    signals.spec = strdup(spec);
    signals.item = calloc(N_KNOWN + 1, sizeof *signals.item);
    int r = signals.spec && signals.item ? 0 : kji_fail_memory(&why);
    for (const char *at = spec, *end; r >= 0; at = end + 1) {
        end = item_end(at);
        r = read_item(at, end, &signals, &why);
        if (!*end)
            break;
    }
    if (r < 0) {
        kji_signals_done(&signals);
        return kji_fail(err, r == KJ_EMEM ? r : KJ_EARG,
                        "signals=\"%.100s\": %s; write it as INT,TERM,USR1=checkpoint", spec,
                        why.message);
    }
    *ret_signals = signals;
    return 0;
}

void kji_signals_done(kji_signals *signals)
{
    for (size_t k = 0; k < signals->n; k++)
        free(signals->item[k].command);
    free(signals->item);
    free(signals->spec);
    *signals = (kji_signals){0};
}
