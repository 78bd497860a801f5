/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening: each part of the channel that cannot be had is one warning (or, with KJ_RUN_STRICT, the
 * error), and the rest goes on without it. The folder is shown last, when all its doors are open.
 * Closing goes the other way round.
 */
#include "clock.h"
#include "errors.h"
#include "files.h"
#include "forks.h"
#include "json.h"
#include "mask.h"
#include "mem.h"
#include "places.h"
#include "recover.h"
#include "run-impl.h"
#include "utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>

enum { NAME_MAX_BYTES = 256 };

static void free_run(kj_run *run)
{
    kj_event_writer_close(run->events.writer, NULL);
    kji_signals_give_back(run);
    kji_helper_stop(&run->helper);
    kji_journal_done(&run->journal); /* before the id is free again: the next one writes it, too */
    kji_publish_remove(&run->place);
    kji_closep(&run->wake_fd);
    kji_forks_remove(run);
    while (run->queue) {
        kji_command *command = run->queue;
        run->queue = command->next;
        kji_command_free(command);
    }
    for (size_t k = 0; k < run->n_warnings; k++)
        free(run->warnings[k]);
    kji_params_done(&run->params);
    kji_own_verbs_done(&run->own_verbs);
    kji_metrics_done(&run->metrics);
    kji_feed_done(&run->feed);
    kji_seen_done(&run->seen);
    kji_signals_done(&run->signals);
    kji_schedule_file_done(&run->schedule);
    json_object_put(run->json);
    json_object_put(run->remarks);
    for (size_t k = 0; k < KJI_N_STANDARD; k++)
        free(run->refusal[k]);
    free(run->rank_refusal);
    free(run->checkpoint.path);
    free(run->stop_reason);
    free(run->first_reason);
    free(run->resumed_from);
    free(run->mailbox_root);
    free(run->id);
    free(run->name);
    free(run->framework);
    pthread_cond_destroy(&run->has_had_it);
    pthread_mutex_destroy(&run->events.lock);
    pthread_mutex_destroy(&run->lock);
    free(run);
}

static kj_run *new_run(const kj_run_options *options)
{
    kj_run *run = calloc(1, sizeof *run);
    if (!run)
        return NULL;
    pthread_mutex_init(&run->lock, NULL);
    pthread_mutex_init(&run->events.lock, NULL);
    pthread_cond_init(&run->has_had_it, NULL);
    kji_helper_init(&run->helper, run);
    kji_feed_init(&run->feed);
    run->cell.step = run->cell.epoch = -1;
    run->cell.due_step = run->cell.due_epoch = INT64_MAX;
    run->moved_step = -1;
    run->stop_validate = -1;
    run->wake_fd = -1;
    run->place = (kji_publication)KJI_PUBLICATION_INIT;
    run->journal = (kji_journal)KJI_JOURNAL_INIT;
    run->queue_end = &run->queue;
    run->flags = options->flags;
    run->helper.is_threadless = options->flags & KJ_RUN_THREADLESS;
    run->total_steps = options->total_steps;
    run->total_epochs = options->total_epochs;
    run->start_time = kji_wall_time();
    run->moved_ms = kji_monotonic_ms();
    run->name =
        strdup(options->name && *options->name ? options->name : program_invocation_short_name);
    run->framework = strdup(options->framework ? options->framework : "");
    const char *checkpoint = getenv("KAJITORI_CHECKPOINT");
    run->resumed_from = strdup(checkpoint ? checkpoint : "");
    if (!run->name || !run->framework || !run->resumed_from) {
        free_run(run);
        return NULL;
    }
    return run;
}

/* A part of the channel failed: the error of a strict run, else a warning and 0. */
static int give_up(kj_run *run, const kj_error *why, kj_error *err)
{
    if (run->flags & KJ_RUN_STRICT || why->code == KJ_EMEM)
        return kji_fail_native(err, why->code, why->domain, why->native, "%s", why->message);
    kji_run_warn(run, "kajitori: %s", why->message);
    return 0;
}

static const char *wanted_id(kj_run *run, const kj_run_options *options)
{
    if (options->run_id && *options->run_id)
        return options->run_id;
    const char *id = getenv("KAJITORI_RUN_ID");
    if (id && *id && !kji_run_id_valid(id)) {
        kji_run_warn(run, "kajitori: KAJITORI_RUN_ID=\"%.80s\" is no run id and is not used", id);
        return NULL;
    }
    return id && *id ? id : NULL;
}

static void journal_stale(kj_run *run, char *text)
{
    if (!text)
        return;
    KJI_CLEANUP(kji_freep) char *masked = kji_mask_text(text, strlen(text));
    struct json_object *fields = json_object_new_object();
    json_object_object_add(fields, "door", json_object_new_string("fifo"));
    json_object_object_add(fields, "text", kji_json_new_text(masked, 1024));
    kji_run_event(run, "stale", fields);
    free(text);
}

static int open_user_fifo(kj_run *run, const char *path, char **ret_stale, kj_error *err)
{
    if (!path || !*path)
        return 0;
    return kji_fifo_open_user(&run->helper.user, path, ret_stale, err);
}

/* What became of the user's FIFO. Where there can be none, the run's own is named, if it has one.
 */
static int settle_user_fifo(kj_run *run, int r, kj_error *why, kj_error *err)
{
    size_t used = strlen(why->message);
    if (r >= 0)
        return 0;
    if (r == KJ_EUNSUPPORTED && run->helper.ctl.fd >= 0)
        snprintf(why->message + used, sizeof why->message - used, "; write to %s instead",
                 run->helper.ctl.path);
    return give_up(run, why, err);
}

int kji_run_write_json(kj_run *run, int dir_fd, kj_error *err)
{
    KJI_CLEANUP(kji_freep) char *text = kji_json_text(run->json);
    if (!text)
        return kji_fail_memory(err);
    return kji_write_file_atomic(dir_fd, "run.json", text, strlen(text), err);
}

static void add_ranks(kj_run *run)
{
    const kji_ranks *ranks = &run->ranks;
    json_object_object_add(run->json, "rank", json_object_new_int64(ranks->rank));
    json_object_object_add(run->json, "world_size", json_object_new_int64(ranks->world_size));
    if (ranks->world_size > 1 && ranks->is_alone)
        json_object_object_add(run->json, "rank_alone", json_object_new_boolean(true));
}

static void describe(kj_run *run)
{
    json_object_put(run->json);
    run->json = kji_describe_run(run->id, run->name, run->framework, run->helper.user.path,
                                 run->start_time);
    add_ranks(run);
    if (run->signals.spec)
        json_object_object_add(run->json, "signals", kji_json_new_text(run->signals.spec, 4096));
    KJI_CLEANUP(kji_freep)
    char *mailbox = run->mailbox_root ? kji_format("%s/%s", run->mailbox_root, run->id) : NULL;
    if (mailbox)
        json_object_object_add(run->json, "mailbox", kji_json_new_text(mailbox, strlen(mailbox)));
}

/* Shows the folder, with its run.json, under run->id. */
static int show(kj_run *run, kj_error *err)
{
    describe(run);
    int r = kji_run_write_json(run, run->place.dir_fd, err);
    return r < 0 ? r : kji_publish_show(&run->place, run->id, err);
}

/* The wanted id is in use: another one is made up. */
static int show_under_new_id(kj_run *run, kj_error *err)
{
    int r = KJ_EBUSY;
    for (int attempt = 0; r == KJ_EBUSY && attempt < 10; attempt++) {
        free(run->id);
        run->id = kji_make_run_id(run->name);
        r = run->id ? show(run, err) : kji_fail_memory(err);
    }
    return r;
}

static int publish(kj_run *run, const kj_run_options *options, kj_error *err)
{
    kj_error why = KJ_ERROR_INIT;
    int r = show(run, &why);
    bool was_named = options->run_id && *options->run_id; /* $KAJITORI_RUN_ID may be an old one */
    if (r == KJ_EBUSY && !(was_named && run->flags & KJ_RUN_STRICT)) {
        if (was_named)
            kji_run_warn(run, "kajitori: %s", why.message);
        r = show_under_new_id(run, &why);
    }
    if (r < 0)
        return kji_fail_native(err, why.code, why.domain, why.native, "%s", why.message);
    free(run->helper.ctl.path);
    run->helper.ctl.path = kji_format("%s/ctl", run->place.dir);
    return run->helper.ctl.path ? 0 : kji_fail_memory(err);
}

/* The doors of the folder that is being made. With `may_lack`, those that its file system refuses
 * are left out. */
static int open_doors(kj_run *run, bool may_lack, kj_error *err)
{
    kji_publication *place = &run->place;
    kji_socket_door *sockets[] = {&run->helper.socket, &run->helper.monitor};
    int r = kji_fifo_open_own(&run->helper.ctl, place->dir_fd, place->dir, err);
    if (r == KJ_EUNSUPPORTED && may_lack) {
        kji_fifo_done(&run->helper.ctl);
        unlinkat(place->dir_fd, "ctl", 0); /* what was made all the same */
        r = 0;
    }
    for (size_t k = 0; r >= 0 && k < 2; k++) {
        r = kji_socket_open(sockets[k], place->dir_fd, place->dir, err);
        if (r == KJ_EUNSUPPORTED && may_lack)
            r = 0;
    }
    return r;
}

/* The folder with its doors, in one RUNTIME place. KJ_EUNSUPPORTED when its file system refuses
 * some. */
static int open_folder_in(kj_run *run, const kj_run_options *options, const char *root,
                          bool may_lack, kj_error *err)
{
    kji_publication *place = &run->place;
    int r = kji_publish_prepare(place, root, err);
    if (r >= 0)
        r = open_doors(run, may_lack, err);
    if (r == KJ_EUNSUPPORTED)
        r = kji_fail_prefix(err, r, "%s", root);
    if (r >= 0)
        r = publish(run, options, err);
    if (r < 0) {
        kji_fifo_done(&run->helper.ctl);
        kji_socket_close_fds(&run->helper.socket);
        kji_socket_close_fds(&run->helper.monitor);
        kji_publish_remove(place);
    }
    return r;
}

/* No place has all doors: the folder goes to the first that can be used but for them, and a mailbox
 * stands in for those. */
static int open_lacking_folder(kj_run *run, const kj_run_options *options, const char *root,
                               kj_error *why, kj_error *err)
{
    if (run->flags & KJ_RUN_STRICT)
        return give_up(run, why, err);
    kj_error again = KJ_ERROR_INIT;
    if (open_folder_in(run, options, root, true, &again) < 0)
        return give_up(run, &again, err);
    KJI_CLEANUP(kji_freep) char *dir = kji_format("%s/mailbox", run->place.dir);
    if (!dir)
        return kji_fail_memory(err);
    if (kji_mailbox_open(&run->helper.mailbox[KJI_MAILBOX_OWN], dir, &again) < 0)
        return give_up(run, &again, err);
    kji_run_warn(run, "kajitori: %s; commands come through the mailbox %s", why->message, dir);
    return 0;
}

/* The first place that can be used is taken; when there is none, the first one's error counts. */
static int open_folder(kj_run *run, const kj_run_options *options, kj_error *err)
{
    char **roots;
    size_t n;
    kj_error first = KJ_ERROR_INIT, refusal = KJ_ERROR_INIT;
    const char *refusing = NULL;
    int r = kji_runtime_choices(options->runtime_dir, &roots, &n, err);
    if (r < 0)
        return r;
    for (size_t k = 0; k < n; k++) {
        kj_error why = KJ_ERROR_INIT;
        r = open_folder_in(run, options, roots[k], false, &why);
        if (r == KJ_EUNSUPPORTED && !refusing) {
            refusing = roots[k];
            refusal = why;
        }
        if (k == 0 || r == KJ_EBUSY)
            first = why;
        if (r >= 0 || r == KJ_EBUSY)
            break;
    }
    if (r >= 0 && refusing)
        kji_run_warn(run, "kajitori: %s; the run is in %s instead", refusal.message,
                     run->place.root);
    else if (r < 0 && r != KJ_EBUSY && refusing)
        r = open_lacking_folder(run, options, refusing, &refusal, err);
    else if (r < 0)
        r = give_up(run, &first, err);
    kji_places_free(roots, n);
    return r;
}

/* The mailbox that was asked for. */
static int open_mailbox(kj_run *run, kj_error *err)
{
    kj_error why = KJ_ERROR_INIT;
    if (!run->mailbox_root)
        return 0;
    KJI_CLEANUP(kji_freep) char *dir = kji_format("%s/%s", run->mailbox_root, run->id);
    if (!dir)
        return kji_fail_memory(err);
    if (kji_mailbox_open(&run->helper.mailbox[KJI_MAILBOX_SHARED], dir, &why) >= 0)
        return 0;
    return give_up(run, &why, err);
}

static int begin_mailboxes(kj_run *run, kj_error *err)
{
    for (int k = 0; k < KJI_MAILBOXES; k++) {
        kji_mailbox *box = &run->helper.mailbox[k];
        kj_error why = KJ_ERROR_INIT;
        if (!box->dir || kji_mailbox_begin(box, run, &why) >= 0)
            continue;
        kji_mailbox_done(box, run);
        int r = give_up(run, &why, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int open_journal(kj_run *run, const char *override, kj_error *err)
{
    KJI_CLEANUP(kji_freep) char *state = NULL;
    int r = kji_state_dir(override, &state, err);
    if (r < 0)
        return r;
    KJI_CLEANUP(kji_freep) char *dir = kji_format("%s/runs/%s", state, run->id);
    r = dir ? kji_journal_open(&run->journal, dir, err) : kji_fail_memory(err);
    if (r >= 0)
        r = kji_run_write_json(run, run->journal.dir_fd, err);
    run->last_seq = run->journal.pending.last_seq;
    if (r >= 0)
        return 0;
    kji_journal_done(&run->journal); /* a disk that is full already is told of once */
    return kji_fail_prefix(err, r, "no journal in %s", dir ? dir : state);
}

static int read_schedule(kj_run *run, const char *path, kj_error *err)
{
    kj_error why = KJ_ERROR_INIT;
    if (!path || !*path)
        path = getenv("KAJITORI_SCHEDULE");
    if (!path || !*path)
        return 0;
    if (kji_schedule_file_read(&run->schedule, path, &why) < 0)
        return give_up(run, &why, err);
    kji_run_pend(run, KJI_PENDING_SCHEDULE);
    return 0;
}

/* Last: a run that cannot be opened leaves no file. The helper may be running. */
static int open_events(kj_run *run, const char *dir, kj_error *err)
{
    kj_error why = KJ_ERROR_INIT;
    if (kji_run_events_open(run, dir, &why) >= 0)
        return 0;
    kji_run_lock(run);
    int r = give_up(run, &why, err);
    kji_run_unlock(run);
    return r;
}

static bool has_door(const kj_run *run)
{
    return run->place.dir_fd >= 0 || run->helper.user.fd >= 0 ||
           run->helper.mailbox[KJI_MAILBOX_SHARED].dir;
}

/* From now on the doors are served, and signals are one of them. */
static int serve(kj_run *run, kj_error *err)
{
    kj_error why = KJ_ERROR_INIT;
    int r = kji_helper_start(&run->helper, err);
    if (r >= 0 && kji_signals_leave_to_all_ranks(run, &why) < 0)
        r = give_up(run, &why, err);
    if (r >= 0 && kji_signals_take(run, &why) < 0)
        r = give_up(run, &why, err);
    return r;
}

/* All that can fail one by one. */
static int open_all(kj_run *run, const kj_run_options *options, kj_error *err)
{
    kj_error why = KJ_ERROR_INIT;
    KJI_CLEANUP(kji_freep) char *stale = NULL;
    int r_user = open_user_fifo(run, options->fifo_path, &stale, &why);
    int r = kji_mailbox_root(options->mailbox_dir, &run->mailbox_root, err);
    if (r >= 0)
        r = open_folder(run, options, err);
    if (r >= 0)
        r = settle_user_fifo(run, r_user, &why, err);
    if (r >= 0)
        r = open_mailbox(run, err);
    if (r < 0 || !has_door(run))
        return r;
    if (run->place.dir_fd < 0)
        describe(run);
    if (open_journal(run, options->state_dir, &why) < 0)
        r = give_up(run, &why, err);
    if (r < 0)
        return r;
    run->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (run->wake_fd < 0)
        return kji_fail_errno(err, KJ_EIO, errno, "cannot make an eventfd");
    struct json_object *fields = json_object_new_object();
    json_object_object_add(fields, "run", json_object_get(run->json));
    kji_recover_describe(run, fields);
    size_t n_early = run->n_warnings;
    kji_run_event(run, "run_started", fields);
    kji_run_journal_warnings(run, n_early);
    kji_recover_warn(run);
    journal_stale(run, kji_take(&stale));
    r = begin_mailboxes(run, err);
    if (r < 0)
        return r;
    r = kji_helper_prepare(&run->helper, err);
    if (r < 0 || run->flags & KJ_RUN_LISTEN_LATER)
        return r;
    return serve(run, err);
}

/* The doors are there and nobody can serve them: better none. */
static int close_doors(kj_run *run, const kj_error *why, kj_error *err)
{
    kji_signals_give_back(run);
    kji_helper_stop(&run->helper);
    kji_publish_remove(&run->place);
    return give_up(run, why, err);
}

static int begin_to_serve(kj_run *run, kj_error *err)
{
    kj_error why = KJ_ERROR_INIT;
    return serve(run, &why) < 0 ? close_doors(run, &why, err) : 0;
}

int kj_run_listen(kj_run *run, kj_error *err)
{
    if (run->forked)
        return 0;
    kji_run_lock(run);
    kji_schedule_file_take_in(run);
    kji_run_unlock(run);
    return begin_to_serve(run, err);
}

/* Which rank this is, and what it does not do alone. */
static int find_rank(kj_run *run, const kj_run_options *options, kj_error *err)
{
    kj_error note = KJ_ERROR_INIT;
    kji_ranks_find(&run->ranks, &note);
    if (options->world_size > 0) {
        run->ranks.rank = options->rank;
        run->ranks.world_size = options->world_size;
        run->ranks.launcher = "the program";
        note = (kj_error)KJ_ERROR_INIT; /* nobody's word is needed */
    }
    run->ranks.is_alone |= (run->flags & KJ_RUN_RANK_ALONE) != 0;
    if (*note.message)
        kji_run_warn(run, "kajitori: %s", note.message);
    if (!kji_ranks_are_several(&run->ranks))
        return 0;
    run->rank_refusal = kji_ranks_refusal(&run->ranks);
    return run->rank_refusal ? 0 : kji_fail_memory(err);
}

static void log_rank(const kj_run *run)
{
    long long rank = run->ranks.rank, world_size = run->ranks.world_size;
    if (kji_ranks_is_quiet(&run->ranks))
        kji_log(KJ_LOG_INFO, "kajitori: rank %lld of %lld has no doors: ask rank 0", rank,
                world_size);
    else if (run->rank_refusal)
        kji_log(KJ_LOG_INFO,
                "kajitori: rank %lld of %lld answers questions and the program's own verbs; what "
                "all ranks would have to do is refused",
                rank, world_size);
}

static int check_options(const kj_run_options *options, kj_error *err)
{
    if (options->run_id && *options->run_id && !kji_run_id_valid(options->run_id))
        return kji_fail(err, KJ_EARG,
                        "run_id \"%.80s\": it has 1 to 64 of A-Z a-z 0-9 . _ - and does not begin "
                        "with a dot or a dash",
                        options->run_id);
    if (options->name && strnlen(options->name, NAME_MAX_BYTES + 1) > NAME_MAX_BYTES)
        return kji_fail(err, KJ_EARG, "name is longer than %d bytes", NAME_MAX_BYTES);
    if (options->framework && strnlen(options->framework, NAME_MAX_BYTES + 1) > NAME_MAX_BYTES)
        return kji_fail(err, KJ_EARG, "framework is longer than %d bytes", NAME_MAX_BYTES);
    if (options->flags & ~(uint32_t)(KJ_RUN_STRICT | KJ_RUN_INTERRUPTIBLE | KJ_RUN_LISTEN_LATER |
                                     KJ_RUN_THREADLESS | KJ_RUN_RANK_ALONE))
        return kji_fail(err, KJ_EARG, "flags 0x%x: unknown bits", options->flags);
    if (options->total_steps < 0 || options->total_epochs < 0)
        return kji_fail(err, KJ_EARG, "total_steps and total_epochs cannot be negative");
    if (options->world_size < 0 || options->world_size > KJI_RANKS_MAX || options->rank < 0 ||
        options->rank >= (options->world_size > 0 ? options->world_size : 1))
        return kji_fail(err, KJ_EARG, "rank %lld of %lld: expected 0 <= rank < world_size <= %d",
                        (long long)options->rank, (long long)options->world_size, KJI_RANKS_MAX);
    return 0;
}

int kj_run_open(const kj_run_options *from, kj_run **ret_run, kj_error *err)
{
    kj_run_options options = KJ_RUN_OPTIONS_INIT;
    enum {
        SIZE_AT_FIRST = offsetof(kj_run_options, mailbox_dir)
    }; /* of programs built before it */
    int r = from ? kji_check_size(from->size, SIZE_AT_FIRST, "kj_run_options", err) : 0;
    if (r < 0)
        return r;
    if (from)
        memcpy(&options, from, from->size < sizeof options ? from->size : sizeof options);
    r = check_options(&options, err);
    if (r < 0)
        return r;
    kj_run *run = new_run(&options);
    if (!run)
        return kji_fail_memory(err);
    r = kji_signals_parse(options.signals, &run->signals, err);
    if (r < 0) {
        free_run(run);
        return r;
    }
    kji_forks_add(run);
    const char *id = wanted_id(run, &options);
    run->id = id ? strdup(id) : kji_make_run_id(run->name);
    kj_error why = KJ_ERROR_INIT;
    r = run->id ? find_rank(run, &options, &why) : kji_fail_memory(&why);
    bool is_quiet = kji_ranks_is_quiet(&run->ranks);
    if (r >= 0 && !is_quiet)
        r = open_all(run, &options, &why);
    if (r >= 0 && !is_quiet)
        r = read_schedule(run, options.schedule_path, &why);
    if (r >= 0 && !is_quiet)
        r = open_events(run, options.events_dir, &why);
    if (r < 0)
        r = close_doors(run, &why, err);
    if (r < 0) {
        free_run(run);
        return r;
    }
    kji_run_log_warnings(run);
    log_rank(run);
    *ret_run = run;
    return 0;
}

/* The helper has ended; those who wait are told by us, before the next records push theirs out. */
static void expire_all(kj_run *run)
{
    for (size_t n = 0; run->queue; n++) {
        if (n % (KJI_FEED_ROOM / 2) == 0)
            kji_helper_tell(&run->helper);
        kji_run_lock(run);
        kji_command *command = run->queue;
        run->queue = command->next;
        command->error = strdup("the run ended before its turn came");
        kji_run_finish(run, command, KJI_EXPIRED);
        kji_run_unlock(run);
    }
    run->queue_end = &run->queue;
    run->n_queued = run->queued_bytes = 0;
}

static void journal_end(kj_run *run)
{
    struct json_object *fields = json_object_new_object();
    bool stopped = kj_run_should_stop(run);
    json_object_object_add(fields, "step", json_object_new_int64(kji_run_step(run)));
    json_object_object_add(fields, "epoch", json_object_new_int64(kji_run_epoch(run)));
    json_object_object_add(fields, "last_seq", json_object_new_int64(run->last_seq));
    json_object_object_add(fields, "stopped", json_object_new_boolean(stopped));
    if (stopped)
        json_object_object_add(fields, "ending",
                               json_object_new_string(kji_ending_name(kj_run_ending(run))));
    if (run->checkpoint.path)
        json_object_object_add(fields, "checkpoint", kji_run_describe_checkpoint(run));
    if (*kj_run_stop_reason(run))
        json_object_object_add(fields, "reason",
                               kji_json_new_text(kj_run_stop_reason(run), KJI_REASON_MAX));
    kji_run_event(run, "run_ended", fields);
}

void kj_run_close(kj_run *run)
{
    if (!run || run->forked)
        return; /* a forked copy stays: its locks may be held by a thread that is not here */
    kji_run_events_close(run);
    begin_to_serve(run, NULL); /* who came before it is answered, too */
    kji_run_lock(run);
    run->is_ended = true;
    kji_run_unlock(run);
    bool was_reachable = run->helper.is_running;
    kji_helper_join(&run->helper);
    expire_all(run);
    if (was_reachable) {
        journal_end(run);
        kji_run_tell_state(run, "ended");
    }
    kji_run_log_warnings(run);
    free_run(run);
}
