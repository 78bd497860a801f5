/* SPDX-License-Identifier: Apache-2.0 */
#include "files.h"
#include "lines-place.h"
#include "mem.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(const char *text, const char *expected)
{
    kji_place_check_growth("csv:%s", text, expected);
}

static void test_columns_by_their_names(void **state)
{
    (void)state;
    check("epoch,step,train_loss,val_loss\n0,49,0.5,\n0,49,,0.25\n1,99,nan,\n",
          ". epoch 49 nan 0\n. train_loss 49 nan 0.5\n. epoch 49 nan 0\n. val_loss 49 nan 0.25\n"
          ". epoch 99 nan 1\n. train_loss 99 nan nan\n");
    check("epoch,loss\n0,1\n1,2", ". loss 0 nan 1\n. loss 1 nan 2\n");
    check("loss\n1\n2\n", ". loss 0 nan 1\n. loss 1 nan 2\n");
    check("Wall time,Step,Value\n1700000000.5,10,0.75\n", ". Value 10 1700000000.5 0.75\n");
    check("_step,_timestamp,loss\n10.0,5,1\n,6,2\n", ". loss 10 5 1\n. loss 1 6 2\n");
}

static void test_separators_quotes_and_ends(void **state)
{
    (void)state;
    check("\xef\xbb\xbf\"epoch\";\"a;b\"\r\n0;1\r\n1;\"2\"\r\n", ". a;b 0 nan 1\n. a;b 1 nan 2\n");
    check("epoch\tx \"y\"\n3\t4\n", ". x \"y\" 3 nan 4\n");
    check("epoch,\"a\nb \"\"c\"\"\"\n0,\"1\"\n", ". a\nb \"c\" 0 nan 1\n");
    check("               epoch,      train/box_loss\n    1,    0.5\n",
          ". train/box_loss 1 nan 0.5\n");
    check("epoch,x\r0,1\r1,2\r", ". x 0 nan 1\n. x 1 nan 2\n");
    check("epoch,x,y\n\n0,1\n\n1,2,3,\n", ". x 0 nan 1\n. x 1 nan 2\n. y 1 nan 3\n");
}

static void test_cells(void **state)
{
    (void)state;
    check("step,a,b,c,d\n1,True,NA,-inf,\"[1, 2]\"\n2,1e3,None,Infinity,x\n",
          ". a 1 nan 1\n. c 1 nan -inf\n. a 2 nan 1000\n. c 2 nan inf\n");
    assert_int_equal(kji_place.n_logged, 2); /* once in each of the two readings */
    assert_non_null(strstr(kji_place.logged, "line 2: column d: \"[1, 2]\" is no number"));
}

static void test_runs_and_own_output(void **state)
{
    (void)state;
    check("run,tag,step,value,wall_time\ntrain,loss,1,0.5,7\n.,\"a,b\",2,NaN,8\n",
          "train loss 1 7 0.5\n. a,b 2 8 nan\n");
    check("run,step,loss\nb,1,2\n5,2,3\n", "b loss 1 nan 2\n. run 2 nan 5\n. loss 2 nan 3\n");
}

static void test_bad_rows(void **state)
{
    (void)state;
    kji_place_append("1,2\nstep,loss\n1,0.5\n2,0.4,7\n3,0.3\n");
    kj_events *source = kji_place_open("csv:%s", 0);
    kji_place_expect(source, ". loss 1 nan 0.5\n. loss 3 nan 0.3\n");
    kj_events_stats stats = KJ_EVENTS_STATS_INIT;
    kj_events_get_stats(source, &stats);
    assert_int_equal(stats.skipped_records, 2);
    assert_int_equal(stats.skipped_bytes, 4 + 8);
    assert_non_null(strstr(kji_place.logged, "line 4: more cells than the header has columns (2)"));
    kj_events_close(source);
}

static void test_a_quote_that_is_never_closed(void **state)
{
    (void)state;
    KJI_CLEANUP(kji_freep) char *text = malloc((1 << 20) + 100);
    size_t size = (size_t)sprintf(text, "step,loss\n1,\"");
    memset(text + size, '\n', 1 << 20);
    strcpy(text + size + (1 << 20), "2,0.5\n3,0.25\n");
    kji_place_append(text);
    kj_events *source = kji_place_open("csv:%s:loss", 0);
    kji_place_expect(source, ". loss 2 nan 0.5\n. loss 3 nan 0.25\n");
    assert_int_equal(kji_place.n_logged, 1);
    kj_events_close(source);
}

/* As Lightning's CSVLogger does when a key appears: all is written anew, columns sorted. */
static void test_rewritten_with_a_new_column(void **state)
{
    (void)state;
    kji_place_append("epoch,step,train_loss\n0,9,0.5\n0,19,0.4\n");
    kj_events *source = kji_place_open("csv:%s", 0);
    kji_place_expect(source, ". epoch 9 nan 0\n. train_loss 9 nan 0.5\n. epoch 19 nan 0\n"
                             ". train_loss 19 nan 0.4\n");
    kji_place_rewrite("acc,epoch,step,train_loss\n");
    kji_place_expect(source, "");
    kji_place_append(",0,9,0.5\n,0,19,0.4\n0.9,0,19,\n");
    kji_place_expect(source, ". acc 19 nan 0.9\n. epoch 19 nan 0\n");
    kji_place_rewrite(
        "a,acc,epoch,step,train_loss\n,,0,9,0.5\n,,0,19,0.4\n,0.9,0,19,\n7,,1,29,0.3\n");
    kji_place_expect(source, ". a 29 nan 7\n. epoch 29 nan 1\n. train_loss 29 nan 0.3\n");
    kji_place_append("8,,1,39,\n");
    kji_place_expect(source, ". a 39 nan 8\n. epoch 39 nan 1\n");
    kj_events_close(source);
}

static void test_another_training_in_the_same_file(void **state)
{
    (void)state;
    kji_place_append("epoch,loss\n0,1\n1,2\n2,3\n");
    kj_events *source = kji_place_open("csv:%s", 0);
    kji_place_expect(source, ". loss 0 nan 1\n. loss 1 nan 2\n. loss 2 nan 3\n");
    kji_place_rewrite("epoch,loss\n0,1\n1,5\n2,3\n"); /* the same up to a row */
    kji_place_expect(source, ". loss 1 nan 5\n. loss 2 nan 3\n");
    kji_place_rewrite("epoch,loss\n0,7\n");
    kji_place_expect(source, ". loss 0 nan 7\n");
    kji_place_append("epoch,loss\n1,8\n"); /* a header again */
    kji_place_expect(source, ". loss 1 nan 8\n");
    assert_int_equal(kji_place.n_logged, 0);
    kj_events_close(source);
}

static void test_a_header_beyond_the_limit_of_columns(void **state)
{
    (void)state;
    char text[30000] = "step";
    size_t size = 4;
    for (int k = 0; k < 12000; k++)
        size += (size_t)sprintf(text + size, ",x");
    strcpy(text + size, "\n1,2,3\n");
    kji_place_append(text);
    kj_events *source = kji_place_open("csv:%s", 0);
    kji_place_expect(source, ". x 1 nan 2\n. x 1 nan 3\n");
    assert_non_null(strstr(kji_place.logged, "more than 10000 columns"));
    kj_events_close(source);
}

static void take_file(const char *name)
{
    char *text;
    assert_int_equal(kji_read_file(AT_FDCWD, kji_test_data(name), 1 << 16, &text, NULL, NULL), 0);
    kji_place_rewrite(text);
    free(text);
}

/* One metrics.csv after each of three calls of save() (tests/data/sources). */
static void test_files_of_lightning(void **state)
{
    (void)state;
    kj_events *source = kji_place_open("csv:%s", 0);
    take_file("sources/lightning-0.csv");
    kji_place_expect(source, ". epoch 9 nan 0\n. train_loss 9 nan 1\n. epoch 19 nan 0\n"
                             ". train_loss 19 nan 0.09090909090909091\n. epoch 29 nan 0\n"
                             ". train_loss 29 nan 0.04761904761904762\n");
    take_file("sources/lightning-1.csv");
    kji_place_expect(source, ". epoch 29 nan 0\n. val_acc 29 nan 0.5\n. val_loss 29 nan 0.25\n");
    take_file("sources/lightning-2.csv");
    kji_place_expect(source, ". epoch 39 nan 1\n. lr-Adam 39 nan 1e-05\n. train_loss 39 nan nan\n"
                             ". epoch 49 nan 1\n. train_loss 49 nan 0.0625\n");
    kj_events_close(source);
}

static void test_files_of_keras(void **state)
{
    (void)state;
    take_file("sources/keras.csv");
    kj_events *source = kji_place_open("csv:%s:val_accuracy", KJ_EVENTS_FINISHED);
    kji_place_expect(source, ". val_accuracy 0 nan 0.6875\n. val_accuracy 1 nan 0.6875\n"
                             ". val_accuracy 2 nan 0.6875\n. val_accuracy 3 nan 0.6875\n"
                             ". val_accuracy 4 nan 0.6875\n");
    kj_events_close(source);
    take_file("sources/keras-tab.csv");
    source = kji_place_open("csv:%s:val_accuracy", KJ_EVENTS_FINISHED);
    kji_place_expect(source, ". val_accuracy 0 nan 0.6875\n. val_accuracy 1 nan 0.6875\n");
    kj_events_close(source);
    assert_int_equal(kji_place.n_logged, 0);
}

static void test_cursor(void **state)
{
    (void)state;
    kji_place_check_cursor("csv:%s", "step;a,b;run\r\n1;2;x\r\n\r\n2;3;\r\n",
                           "x a,b 1 nan 2\n. a,b 2 nan 3\n");
    kji_place_check_cursor("csv:%s", "step,a,b\n1,2,3\n4,,5\n6,7,8",
                           ". a 1 nan 2\n. b 1 nan 3\n. b 4 nan 5\n. a 6 nan 7\n. b 6 nan 8\n");
}

/* The rows that the reader before had are known by their sum, also in columns that have moved. */
static void test_cursor_of_a_file_that_is_rewritten(void **state)
{
    (void)state;
    kji_place_append("step,b\n1,0.5\n2,0.4\n");
    kj_events *source = kji_place_open("csv:%s", 0);
    kji_place_expect(source, ". b 1 nan 0.5\n. b 2 nan 0.4\n");
    source = kji_place_reopen(source, "csv:%s", 0);
    kji_place_rewrite("a,b,step\n,0.5,1\n,0.4,2\n9,,3\n");
    kji_place_expect(source, ". a 3 nan 9\n");
    source = kji_place_reopen(source, "csv:%s", 0);
    kji_place_append("8,,4\n");
    kji_place_expect(source, ". a 4 nan 8\n");
    source = kji_place_reopen(source, "csv:%s", 0);
    kji_place_rewrite("a,b,step\n,0.5,1\n,0.3,2\n7,,3\n6,,4\n5,,5\n"); /* not the same rows */
    kji_place_expect(source,
                     ". b 1 nan 0.5\n. b 2 nan 0.3\n. a 3 nan 7\n. a 4 nan 6\n. a 5 nan 5\n");
    source = kji_place_reopen(source, "csv:%s", 0);
    kji_place_rewrite("b,step\n1,1\n"); /* already the first one differs */
    kji_place_expect(source, ". b 1 nan 1\n");
    kj_events_close(source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KJI_PLACE_TEST(test_columns_by_their_names),
        KJI_PLACE_TEST(test_separators_quotes_and_ends),
        KJI_PLACE_TEST(test_cells),
        KJI_PLACE_TEST(test_runs_and_own_output),
        KJI_PLACE_TEST(test_bad_rows),
        KJI_PLACE_TEST(test_a_quote_that_is_never_closed),
        KJI_PLACE_TEST(test_rewritten_with_a_new_column),
        KJI_PLACE_TEST(test_another_training_in_the_same_file),
        KJI_PLACE_TEST(test_a_header_beyond_the_limit_of_columns),
        KJI_PLACE_TEST(test_files_of_lightning),
        KJI_PLACE_TEST(test_files_of_keras),
        KJI_PLACE_TEST(test_cursor),
        KJI_PLACE_TEST(test_cursor_of_a_file_that_is_rewritten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
