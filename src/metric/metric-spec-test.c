/* SPDX-License-Identifier: Apache-2.0 */
/* The grammar of specs, and which points a tag selects. */
#include "event-frame.h"
#include "metric-rows.h"
#include "source-kind.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void check_parts(const char *text, const char *where, const char *tag)
{
    kji_spec spec;
    kj_error err = KJ_ERROR_INIT;
    if (kji_spec_parse(text, &spec, &err) < 0)
        fail_msg("%s", err.message);
    assert_string_equal(spec.where, where);
    if (tag)
        assert_string_equal(spec.tag, tag);
    else
        assert_null(spec.tag);
    kji_spec_done(&spec);
    assert_int_equal(kj_events_check(text, NULL), 0);
}

static void test_good_specs(void **state)
{
    (void)state;
    check_parts("events:logs/7", "logs/7", NULL);
    check_parts("events:logs/7/:*", "logs/7", NULL);
    check_parts("events:/", "/", NULL);
    check_parts("events:logs:validation/epoch_loss", "logs", "validation/epoch_loss");
    check_parts("events:logs:accuracy:0", "logs", "accuracy:0");
    check_parts("events:a\\:b\\\\c\\d:t", "a:b\\c\\d", "t");
    check_parts("jsonl:a\\:b.jsonl:eval/loss:0", "a:b.jsonl", "eval/loss:0");
    check_parts("jsonl:-", "-", NULL);
    check_parts("csv:metrics.csv:*", "metrics.csv", NULL);
    check_parts("trainer:out/:eval_loss", "out", "eval_loss");
    check_parts("text:a\\:b:/x(:)/", "a\\:b:/x(:)/", NULL);
    check_parts("stdout:/a:b/c=(\\S+)/", "a:b/c=(\\S+)", NULL);
}

static void test_every_kind_fills_its_table(void **state)
{
    (void)state;
    for (size_t k = 0; kji_source_kinds[k]; k++) {
        const kji_source_kind *kind = kji_source_kinds[k];
        assert_int_equal(kind->size, sizeof *kind);
        assert_true(kind->instance_size > 0);
        assert_true(kind->split && kind->open && kind->close && kind->step && kind->count);
        assert_int_equal(strncmp(kind->syntax, kind->name, strlen(kind->name)), 0);
        assert_int_equal(kind->syntax[strlen(kind->name)], ':');
        assert_string_equal(kj_events_source_name((uint32_t)k), kind->name);
        assert_null(kj_events_source_name((uint32_t)k + 1000));
    }
    assert_string_equal(kj_events_source_name(0), "events");
}

#define KNOWN                                                                          \
    "events:FOLDER[:TAG], jsonl:FILE[:FIELD], csv:FILE[:COLUMN], trainer:FILE[:KEY], " \
    "text:FILE:/PATTERN/, stdout:/PATTERN/"

static void test_bad_specs(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "unknown metric source \"\"; known: " KNOWN},
        {"event:logs", "unknown metric source \"event\"; known: " KNOWN},
        {"events", "metric \"events\" is incomplete; expected events:FOLDER[:TAG]"},
        {"events:", "metric \"events:\": no folder given; expected events:FOLDER[:TAG]"},
        {"events::loss", "metric \"events::loss\": no folder given; expected events:FOLDER[:TAG]"},
        {"events:logs:", "metric \"events:logs:\": empty tag; leave the last colon out, or write * "
                         "for all of them"},
        {"stdout:loss=(.*)", "metric \"stdout:loss=(.*)\": a pattern stands between slashes; "
                             "expected stdout:/PATTERN/"},
        {"stdout:/", "metric \"stdout:/\": a pattern stands between slashes; expected "
                     "stdout:/PATTERN/"},
        {"stdout:/loss=\\S+/", "metric \"stdout:/loss=\\S+/\": the pattern captures no value; put "
                               "it in brackets, as in /loss=(\\S+)/"},
        {"stdout:/(?<step>\\d+)/", "metric \"stdout:/(?<step>\\d+)/\": the pattern captures no "
                                   "value; put it in brackets, as in /loss=(\\S+)/"},
        {"stdout:/loss=(\\S+/", "metric \"stdout:/loss=(\\S+/\": bad pattern at offset 9, near "
                                "\"\": missing closing parenthesis"},
        {"stdout:/a[b)c/", "metric \"stdout:/a[b)c/\": bad pattern at offset 5, near \"\": missing "
                           "terminating ] for character class"},
        {"jsonl:", "metric \"jsonl:\": no file given; expected jsonl:FILE[:FIELD]"},
        {"jsonl:a:", "metric \"jsonl:a:\": empty field; leave the last colon out, or write * for "
                     "all of them"},
        {"csv", "metric \"csv\" is incomplete; expected csv:FILE[:COLUMN]"},
        {"csv:a:", "metric \"csv:a:\": empty column; leave the last colon out, or write * for all "
                   "of them"},
        {"trainer::loss", "metric \"trainer::loss\": no file given; expected trainer:FILE[:KEY]"},
        {"text:train.log", "metric \"text:train.log\": a pattern stands between slashes; expected "
                           "text:FILE:/PATTERN/"},
        {"text:/loss=(.*)/", "metric \"text:/loss=(.*)/\": a pattern stands between slashes; "
                             "expected text:FILE:/PATTERN/"},
        {"text:a:/b/", "metric \"text:a:/b/\": the pattern captures no value; put it in brackets, "
                       "as in /loss=(\\S+)/"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        kj_error err = KJ_ERROR_INIT;
        assert_int_equal(kj_events_check(cases[k].text, &err), KJ_EARG);
        assert_string_equal(err.message, cases[k].message);
    }
}

/* A file with one simple_value record per name, value 1, 2, …, at step 10, 20, …. */
static void write_events(const char *folder, const char *const *tags)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", kji_test_top, folder);
    mkdir(path, 0700);
    strcat(path, "/events.out.tfevents.1.h");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int k = 0; tags[k]; k++) {
        unsigned char event[100], head[KJI_FRAME_HEAD], tail[4];
        size_t size = strlen(tags[k]);
        float value = (float)(k + 1);
        unsigned char *to = event;
        *to++ = 0x10;
        *to++ = (unsigned char)(10 * (k + 1));
        *to++ = 0x2a;
        *to++ = (unsigned char)(size + 9);
        *to++ = 0x0a;
        *to++ = (unsigned char)(size + 7);
        *to++ = 0x0a;
        *to++ = (unsigned char)size;
        to = mempcpy(to, tags[k], size);
        *to++ = 0x15;
        to = mempcpy(to, &value, 4);
        size = (size_t)(to - event);
        kji_frame_seal(event, size, head, tail);
        fwrite(head, sizeof head, 1, file);
        fwrite(event, size, 1, file);
        fwrite(tail, sizeof tail, 1, file);
    }
    fclose(file);
}

static kj_events *open_tag_of(const char *wanted_run, const char *tag)
{
    char spec[300], *run = wanted_run ? strdup(wanted_run) : NULL;
    snprintf(spec, sizeof spec, "events:%s:%s", kji_test_top, tag);
    kj_events_options options = KJ_EVENTS_OPTIONS_INIT;
    options.run = run;
    kj_events *source = NULL;
    assert_int_equal(kj_events_open(spec, &options, &source, NULL), 0);
    free(run);
    return source;
}

static kj_events *open_tag(const char *tag)
{
    return open_tag_of(NULL, tag);
}

static void check_selected_of(const char *wanted_run, const char *tag, size_t n, const char *run,
                              const char *first)
{
    kji_rows got = {0};
    kj_events *source = open_tag_of(wanted_run, tag);
    kji_rows_drain(source, &got);
    assert_int_equal(got.n, n);
    if (n) {
        assert_string_equal(got.rows[0].run, run);
        assert_string_equal(got.rows[0].tag, first);
    }
    kj_events_close(source);
    kji_rows_done(&got);
}

static void check_selected(const char *tag, size_t n, const char *run, const char *first)
{
    check_selected_of(NULL, tag, n, run, first);
}

static void test_selection(void **state)
{
    (void)state;
    write_events(".", (const char *const[]){"loss", "eval/loss", NULL});
    write_events("eval", (const char *const[]){"loss", "acc", "deep/acc", NULL});
    write_events("eval/deep", (const char *const[]){"acc", "acc", NULL});
    check_selected("*", 7, ".", "loss");
    check_selected("loss", 2, ".", "loss"); /* in two runs */
    check_selected("./loss", 1, ".", "loss");
    check_selected("eval/loss", 1, ".", "eval/loss"); /* the exact tag before the run */
    check_selected("eval/acc", 1, "eval", "acc");
    check_selected("eval/deep/acc", 3, "eval", "deep/acc"); /* until the longer run is seen */
    check_selected("los", 0, NULL, NULL);
    check_selected("eval", 0, NULL, NULL);
    check_selected("eval/", 0, NULL, NULL);
    check_selected("acc/", 0, NULL, NULL);
}

static void test_selection_of_a_run(void **state)
{
    (void)state;
    write_events(".", (const char *const[]){"loss", "eval/loss", NULL});
    write_events("eval", (const char *const[]){"loss", "acc", NULL});
    check_selected_of("eval", "*", 2, "eval", "loss");
    check_selected_of("eval", "loss", 1, "eval", "loss");
    check_selected_of("eval", "eval/loss", 1, "eval", "loss"); /* no tag of another run counts */
    check_selected_of(".", "eval/loss", 1, ".", "eval/loss");
    check_selected_of(".", "acc", 0, NULL, NULL);
    check_selected_of("none", "*", 0, NULL, NULL);
}

struct listing {
    char text[2000];
};

static int list(void *userdata, const kj_tag_info *tag)
{
    struct listing *listing = userdata;
    size_t used = strlen(listing->text);
    snprintf(listing->text + used, sizeof listing->text - used, "%s:%s %d [%d..%d] %g [%g..%g]\n",
             tag->run, tag->tag, (int)tag->count, (int)tag->first_step, (int)tag->last_step,
             tag->last_value, tag->min_value, tag->max_value);
    return 0;
}

static void test_listing_tells_what_exists(void **state)
{
    (void)state;
    struct listing listing = {""};
    kji_rows got = {0};
    write_events(".", (const char *const[]){"loss", "acc", "loss", NULL});
    write_events("eval", (const char *const[]){"acc", NULL});
    kj_events *source = open_tag("eval/acc");
    assert_int_equal(kj_events_list_tags(source, list, &listing, NULL), 0);
    assert_string_equal(listing.text, ""); /* nothing has been read yet */
    kji_rows_drain(source, &got);
    assert_int_equal(got.n, 1);
    assert_int_equal(kj_events_list_tags(source, list, &listing, NULL), 0);
    assert_string_equal(listing.text, ".:acc 1 [20..20] 2 [2..2]\n"
                                      ".:loss 2 [10..30] 3 [1..3]\n"
                                      "eval:acc 1 [10..10] 1 [1..1]\n");
    kj_events_close(source);
    kji_rows_done(&got);
}

static void test_bad_options(void **state)
{
    (void)state;
    kj_events_options options = KJ_EVENTS_OPTIONS_INIT;
    kj_events *source = NULL;
    kj_error err = KJ_ERROR_INIT;
    options.flags = 64;
    assert_int_equal(kj_events_open("events:x", &options, &source, &err), KJ_EARG);
    options.flags = 0;
    options.size = 4096;
    assert_int_equal(kj_events_open("events:x", &options, &source, &err), KJ_EARG);
    assert_int_equal(kj_events_open("stdout:/(x)/", NULL, &source, &err), KJ_EARG);
    assert_non_null(strstr(err.message, "text_path"));
    assert_int_equal(kj_events_open("events:/dev/null", NULL, &source, &err), KJ_EARG);
    assert_string_equal(err.message, "/dev/null is neither a folder nor a file");
    assert_null(source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_specs),     cmocka_unit_test(test_every_kind_fills_its_table),
        cmocka_unit_test(test_bad_specs),      KJI_TOP_TEST(test_selection),
        KJI_TOP_TEST(test_selection_of_a_run), KJI_TOP_TEST(test_listing_tells_what_exists),
        KJI_TOP_TEST(test_bad_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
