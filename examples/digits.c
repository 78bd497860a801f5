/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small network (64 - units - 10) learns handwritten digits by stochastic gradient descent with
 * momentum, and can be steered while it does:
 *
 *     digits --epochs 200 --step-ms 2 &
 *     kajitori set lr=0.01            a parameter, with a type and a range
 *     kajitori send "shake scale=0.1" a verb of this program's own
 *     kajitori send checkpoint        a standard verb that it provides; also evaluate, extend
 *     kajitori stop --at epoch --reason "good enough"
 *     kajitori send "pause level=leave"   saves, and ends with exit status 75
 *
 * What makes it steerable: kj_run_open, kj_run_add_param, kj_run_add_verb, kj_run_declare, and in
 * the loop kj_run_begin_epoch, kj_run_begin_step, kj_run_report, kj_run_end_epoch. The rest is the
 * training. A checkpoint holds all of `training`, so that what goes on from it does exactly what
 * the run that saved it would have done.
 */
#include <kajitori.h>

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PIXELS = 64, CLASSES = 10, MAX_UNITS = 1024, BATCH = 32, TRAINING = 1437, MAX_ROWS = 1797 };
enum { STEPS_PER_EPOCH = (TRAINING + BATCH - 1) / BATCH, NOT_BEGUN = -1 };

#define USAGE                                                                                 \
    "usage: digits [--epochs N] [--lr X] [--units N] [--seed N] [--fifo PATH] [--step-ms N] " \
    "[--data FILE] [--checkpoints DIR]"

typedef struct options {
    long epochs;
    double lr;
    long units;
    long seed;
    long step_ms;
    const char *fifo;
    const char *data;
    const char *checkpoints;
} options;

typedef struct network {
    int units;
    double lr;
    double momentum;
    uint64_t random;
    /* Weights, then their momenta; a layer's bias is its last row. */
    float first[PIXELS + 1][MAX_UNITS], first_speed[PIXELS + 1][MAX_UNITS];
    float second[MAX_UNITS + 1][CLASSES], second_speed[MAX_UNITS + 1][CLASSES];
} network;

/* Everything that changes while the network learns. */
typedef struct training {
    network net;
    int64_t step;
    long epoch;
    long epochs;        /* so many in all */
    int first;          /* of the epoch's rows, those of the next batch; NOT_BEGUN */
    int rows[TRAINING]; /* in the order of this epoch */
    double loss;        /* sum over the epoch's batches */
    int batches;
} training;

typedef struct digits {
    int n;
    float pixels[MAX_ROWS][PIXELS];
    int label[MAX_ROWS];
} digits;

typedef struct score {
    double loss;
    double accuracy;
} score;

static training now;
static digits data;
static const options *given;
static kj_run *run;

/* xorshift64*, from 0 to 1. */
static double uniform(network *n)
{
    n->random ^= n->random >> 12;
    n->random ^= n->random << 25;
    n->random ^= n->random >> 27;
    return (double)((n->random * 2685821657736338717u) >> 11) / 9007199254740992.0;
}

static double normal(network *n)
{
    double radius = sqrt(-2 * log(1 - uniform(n)));
    return radius * cos(6.283185307179586 * uniform(n));
}

static int read_digits(const char *path)
{
    FILE *file = fopen(path, "r");
    char line[512];
    if (!file) {
        perror(path);
        return -1;
    }
    while (data.n < MAX_ROWS && fgets(line, sizeof line, file)) {
        char *at = line;
        for (int k = 0; k < PIXELS; k++, at++)
            data.pixels[data.n][k] = (float)strtol(at, &at, 10) / 16;
        data.label[data.n++] = (int)strtol(at, NULL, 10);
    }
    fclose(file);
    if (data.n <= TRAINING) {
        fprintf(stderr, "%s: %d rows; more than %d are needed\n", path, data.n, TRAINING);
        return -1;
    }
    return 0;
}

static void init_network(network *n, const options *opt)
{
    n->units = (int)opt->units;
    n->lr = opt->lr;
    n->momentum = 0.9;
    n->random = 0x9e3779b97f4a7c15u ^ (uint64_t)opt->seed;
    for (int i = 0; i < PIXELS; i++)
        for (int j = 0; j < n->units; j++)
            n->first[i][j] = (float)(normal(n) * sqrt(2.0 / PIXELS));
    for (int i = 0; i < n->units; i++)
        for (int j = 0; j < CLASSES; j++)
            n->second[i][j] = (float)(normal(n) * sqrt(2.0 / n->units));
}

/* The probabilities of the classes; the hidden layer's values are left in `hidden`. */
static void forward(const network *n, const float *pixels, float *hidden, float *probability)
{
    float largest = -INFINITY, sum = 0;
    for (int j = 0; j < n->units; j++) {
        float x = n->first[PIXELS][j];
        for (int i = 0; i < PIXELS; i++)
            x += pixels[i] * n->first[i][j];
        hidden[j] = x > 0 ? x : 0;
    }
    for (int j = 0; j < CLASSES; j++) {
        probability[j] = n->second[n->units][j];
        for (int i = 0; i < n->units; i++)
            probability[j] += hidden[i] * n->second[i][j];
        largest = probability[j] > largest ? probability[j] : largest;
    }
    for (int j = 0; j < CLASSES; j++)
        sum += probability[j] = expf(probability[j] - largest);
    for (int j = 0; j < CLASSES; j++)
        probability[j] /= sum;
}

static void move(float *weight, float *speed, float gradient, const network *n)
{
    *speed = (float)n->momentum * *speed - (float)n->lr * gradient;
    *weight += *speed;
}

/* One batch: the mean gradient, then one step against it. Returns the loss before the step. */
static double train_batch(network *n, const int *rows, int size)
{
    static float first[PIXELS + 1][MAX_UNITS], second[MAX_UNITS + 1][CLASSES];
    float hidden[MAX_UNITS + 1], error[CLASSES];
    double loss = 0;
    memset(first, 0, sizeof first);
    memset(second, 0, sizeof second);
    for (int k = 0; k < size; k++) {
        const float *pixels = data.pixels[rows[k]];
        forward(n, pixels, hidden, error);
        loss -= log((double)error[data.label[rows[k]]] + 1e-12) / size;
        error[data.label[rows[k]]] -= 1;
        hidden[n->units] = 1;
        for (int i = 0; i <= n->units; i++) {
            float back = 0;
            for (int j = 0; j < CLASSES; j++) {
                second[i][j] += hidden[i] * error[j] / (float)size;
                back += n->second[i][j] * error[j];
            }
            if (i == n->units || hidden[i] <= 0)
                continue;
            for (int p = 0; p < PIXELS; p++)
                first[p][i] += pixels[p] * back / (float)size;
            first[PIXELS][i] += back / (float)size;
        }
    }
    for (int i = 0; i <= PIXELS; i++)
        for (int j = 0; j < n->units; j++)
            move(&n->first[i][j], &n->first_speed[i][j], first[i][j], n);
    for (int i = 0; i <= n->units; i++)
        for (int j = 0; j < CLASSES; j++)
            move(&n->second[i][j], &n->second_speed[i][j], second[i][j], n);
    return loss;
}

static score validate(const network *n)
{
    float hidden[MAX_UNITS], probability[CLASSES];
    score sum = {0, 0};
    int count = data.n - TRAINING, correct = 0;
    for (int row = TRAINING; row < data.n; row++) {
        int best = 0;
        forward(n, data.pixels[row], hidden, probability);
        for (int j = 1; j < CLASSES; j++)
            best = probability[j] > probability[best] ? j : best;
        sum.loss -= log((double)probability[data.label[row]] + 1e-12) / count;
        correct += best == data.label[row];
    }
    sum.accuracy = (double)correct / count;
    return sum;
}

static void shuffle(network *n, int *rows, int size)
{
    for (int k = size - 1; k > 0; k--) {
        int other = (int)(uniform(n) * (k + 1)), kept = rows[k];
        rows[k] = rows[other];
        rows[other] = kept;
    }
}

static int get_double(void *userdata, kj_value *ret_value, kj_error *err)
{
    (void)err;
    ret_value->type = KJ_TYPE_FLOAT;
    ret_value->f = *(double *)userdata;
    return 0;
}

static int set_double(void *userdata, const kj_value *value, kj_error *err)
{
    (void)err;
    *(double *)userdata = value->f;
    return 0;
}

/* Adds noise to all weights: "shake scale=0.1". */
static int shake(void *userdata, kj_call *call, kj_error *err)
{
    network *n = userdata;
    kj_value scale;
    char result[80];
    int count = 0;
    if (!kj_call_get_arg(call, "scale", &scale))
        scale.f = 0.05;
    for (int i = 0; i < PIXELS; i++)
        for (int j = 0; j < n->units; j++, count++)
            n->first[i][j] += (float)(normal(n) * scale.f);
    snprintf(result, sizeof result, "{\"weights\": %d}", count);
    return kj_call_set_result(call, result, err);
}

/* Why a verb failed, for its sender. */
static int fail(kj_error *err, const char *what, const char *why)
{
    snprintf(err->message, sizeof err->message, "%.500s: %s", what, why);
    return KJ_EFAILED;
}

/* Under another name first: a checkpoint is whole, or not there. */
static int write_training(const char *path, kj_error *err)
{
    char part[4200];
    snprintf(part, sizeof part, "%s.part", path);
    FILE *file = fopen(part, "w");
    if (!file)
        return fail(err, part, strerror(errno));
    size_t written = fwrite(&now, sizeof now, 1, file);
    if (fclose(file) != 0 || written != 1 || rename(part, path) != 0)
        return fail(err, part, strerror(errno));
    return 0;
}

static int read_training(const char *path)
{
    FILE *file = fopen(path, "r");
    if (!file) {
        perror(path);
        return -1;
    }
    bool good = fread(&now, sizeof now, 1, file) == 1 && fgetc(file) == EOF && now.net.units > 0 &&
                now.net.units <= MAX_UNITS;
    fclose(file);
    if (!good)
        fprintf(stderr, "%s: no checkpoint of this program\n", path);
    return good ? 0 : -1;
}

static int save_checkpoint(void *userdata, kj_call *call, kj_error *err)
{
    (void)userdata;
    char path[4096], result[4200];
    snprintf(path, sizeof path, "%.3900s/%s-%lld.digits", given->checkpoints, kj_run_id(run),
             (long long)now.step);
    if (write_training(path, err) < 0)
        return KJ_EFAILED;
    snprintf(result, sizeof result, "{\"path\": \"%s\"}", path);
    return kj_call_set_result(call, result, err);
}

static int evaluate(void *userdata, kj_call *call, kj_error *err)
{
    char result[100];
    score now_is = validate(userdata);
    snprintf(result, sizeof result, "{\"validation/loss\": %.9g, \"validation/accuracy\": %.9g}",
             now_is.loss, now_is.accuracy);
    return kj_call_set_result(call, result, err);
}

static int extend(void *userdata, kj_call *call, kj_error *err)
{
    (void)userdata;
    kj_value more;
    char result[100];
    if (!kj_call_get_arg(call, "epochs", &more))
        return fail(err, "steps", "this training counts in epochs");
    now.epochs += more.i;
    snprintf(result, sizeof result, "{\"total_epochs\": %ld, \"total_steps\": %ld}", now.epochs,
             now.epochs * STEPS_PER_EPOCH);
    return kj_call_set_result(call, result, err);
}

static int add_params(network *n, kj_error *err)
{
    kj_param lr = {.size = sizeof lr,
                   .type = KJ_TYPE_FLOAT,
                   .name = "lr",
                   .help = "learning rate",
                   .flags = KJ_PARAM_MIN | KJ_PARAM_MAX | KJ_PARAM_MIN_EXCLUSIVE,
                   .min = 0,
                   .max = 10,
                   .get = get_double,
                   .set = set_double,
                   .userdata = &n->lr};
    kj_param momentum = lr;
    momentum.name = "momentum";
    momentum.help = "share of the last step that is kept";
    momentum.flags = KJ_PARAM_MIN | KJ_PARAM_MAX;
    momentum.max = 0.999;
    momentum.userdata = &n->momentum;
    int r = kj_run_add_param(run, &lr, err);
    return r < 0 ? r : kj_run_add_param(run, &momentum, err);
}

static int add_verbs(network *n, kj_error *err)
{
    kj_arg scale = {.size = sizeof scale,
                    .type = KJ_TYPE_FLOAT,
                    .name = "scale",
                    .help = "standard deviation of the noise [0.05]",
                    .flags = KJ_ARG_MIN | KJ_ARG_MAX,
                    .min = 0,
                    .max = 10};
    const kj_verb verbs[] = {
        {.name = "shake",
         .help = "shake [scale=S]: adds noise to the weights of the first layer",
         .args = &scale,
         .n_args = 1,
         .run = shake},
        {.name = "checkpoint", .run = save_checkpoint},
        {.name = "evaluate", .run = evaluate},
        {.name = "extend", .run = extend},
    };
    for (size_t k = 0; k < sizeof verbs / sizeof *verbs; k++) {
        kj_verb verb = verbs[k];
        verb.size = sizeof verb;
        verb.userdata = n;
        int r = kj_run_add_verb(run, &verb, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* The slowness of a larger model. */
static void idle(long ms)
{
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (ms > 0 && nanosleep(&left, &left) != 0)
        ;
}

static void begin_epoch(training *t)
{
    for (int k = 0; k < TRAINING; k++)
        t->rows[k] = k;
    shuffle(&t->net, t->rows, TRAINING);
    t->loss = t->batches = t->first = 0;
}

/* The batches of this epoch that are left. */
static int train_batches(training *t)
{
    int bits = 0;
    for (; t->first < TRAINING; t->first += BATCH, t->step++) {
        bits = kj_run_begin_step(run, t->step);
        if (bits & KJ_RUN_STOP)
            break;
        int size = TRAINING - t->first < BATCH ? TRAINING - t->first : BATCH;
        t->loss += train_batch(&t->net, t->rows + t->first, size);
        t->batches++;
        idle(given->step_ms);
    }
    return bits;
}

static void report_epoch(const training *t)
{
    kj_run_set_phase(run, "validation");
    score result = validate(&t->net);
    double loss = t->batches ? t->loss / t->batches : NAN;
    kj_run_report(run, "train/loss", t->step, loss, NULL);
    kj_run_report(run, "validation/loss", t->step, result.loss, NULL);
    kj_run_report(run, "validation/accuracy", t->step, result.accuracy, NULL);
    printf("epoch %ld train_loss=%.6g val_loss=%.6g val_acc=%.4f\n", t->epoch, loss, result.loss,
           result.accuracy);
    fflush(stdout);
}

/* One epoch, or what is left of it. Returns enum kj_run_bits. */
static int train_epoch(training *t)
{
    long epoch = t->epoch;
    kj_run_set_phase(run, "train");
    if (t->first == NOT_BEGUN)
        begin_epoch(t);
    kj_run_begin_epoch(run, epoch);
    int bits = train_batches(t);
    if (bits & (KJ_RUN_LEFT | KJ_RUN_ABORTED))
        return bits;
    if (!(bits & KJ_RUN_STOP) || kj_run_stop_validate(run) != 0)
        report_epoch(t);
    if (t->first >= TRAINING) {
        t->epoch++;
        t->first = NOT_BEGUN;
    }
    return kj_run_end_epoch(run, epoch);
}

static int open_run(kj_error *err)
{
    kj_run_options run_options = KJ_RUN_OPTIONS_INIT;
    run_options.name = "digits";
    run_options.fifo_path = given->fifo;
    run_options.flags = KJ_RUN_LISTEN_LATER; /* until all is registered */
    run_options.total_epochs = given->epochs;
    run_options.total_steps = given->epochs * STEPS_PER_EPOCH;
    int r = kj_run_open(&run_options, &run, err);
    if (r >= 0)
        r = add_params(&now.net, err);
    if (r >= 0)
        r = add_verbs(&now.net, err);
    if (r >= 0)
        kj_run_declare(run, KJ_CAN_SKIP_VALIDATION | KJ_CAN_LEAVE | KJ_CAN_ABORT);
    return r;
}

/* A new training, or the one of which `kajitori resume` has the checkpoint. */
static int begin_training(void)
{
    const char *checkpoint = kj_run_resumed_from(run);
    if (!*checkpoint)
        return 0;
    if (read_training(checkpoint) < 0)
        return -1;
    kj_run_set_totals(run, now.epochs * STEPS_PER_EPOCH, now.epochs);
    printf("resumed from %s at step %lld, epoch %ld\n", checkpoint, (long long)now.step, now.epoch);
    return 0;
}

static int train(void)
{
    static const char *const endings[] = {"finished", "stopped", "pruned", "left", "aborted"};
    kj_error err = KJ_ERROR_INIT;
    int bits = 0;
    if (open_run(&err) < 0) {
        fprintf(stderr, "digits: %s\n", err.message);
        return 1;
    }
    printf("run %s\n", kj_run_id(run));
    if (begin_training() < 0) {
        kj_run_close(run);
        return 1;
    }
    fflush(stdout);
    kj_run_listen(run, NULL);
    while (now.epoch < now.epochs && !(bits & KJ_RUN_STOP))
        bits = train_epoch(&now);
    const char *reason = kj_run_stop_reason(run);
    printf("%s at step %lld, epoch %lld%s%s\n", endings[kj_run_ending(run)], (long long)now.step,
           (long long)(bits & KJ_RUN_STOP ? kj_run_get_cell(run)->epoch : now.epoch),
           *reason ? ": " : "", reason);
    int status = kj_run_exit_status(run);
    kj_run_close(run);
    return status;
}

static void print_warning(void *userdata, int level, const char *message)
{
    (void)userdata, (void)level;
    fprintf(stderr, "digits: %s\n", message);
}

static int usage(const char *problem)
{
    fprintf(stderr, "digits: %s\n%s\n", problem, USAGE);
    return 2;
}

static int parse_long(const char *text, long min, long max, long *ret_value)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (end == text || *end || value < min || value > max)
        return -1;
    *ret_value = value;
    return 0;
}

static int parse_lr(const char *text, double *ret_value)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value > 0 && value <= 10))
        return -1;
    *ret_value = value;
    return 0;
}

static int parse_option(const char *name, const char *value, options *opt)
{
    if (strcmp(name, "--epochs") == 0)
        return parse_long(value, 0, 1000000, &opt->epochs);
    if (strcmp(name, "--units") == 0)
        return parse_long(value, 1, MAX_UNITS, &opt->units);
    if (strcmp(name, "--seed") == 0)
        return parse_long(value, 0, 1000000000, &opt->seed);
    if (strcmp(name, "--step-ms") == 0)
        return parse_long(value, 0, 60000, &opt->step_ms);
    if (strcmp(name, "--lr") == 0)
        return parse_lr(value, &opt->lr);
    if (strcmp(name, "--fifo") == 0)
        opt->fifo = value;
    else if (strcmp(name, "--data") == 0)
        opt->data = value;
    else if (strcmp(name, "--checkpoints") == 0)
        opt->checkpoints = value;
    else
        return -1;
    return 0;
}

int main(int argc, char **argv)
{
    options opt = {.epochs = 20, .lr = 0.05, .units = 32, .data = DIGITS_CSV, .checkpoints = "."};
    char problem[200];
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        puts(USAGE);
        return 0;
    }
    for (int k = 1; k < argc; k += 2) {
        if (k + 1 == argc || parse_option(argv[k], argv[k + 1], &opt) < 0) {
            snprintf(problem, sizeof problem, "cannot use %.60s %.60s", argv[k],
                     k + 1 < argc ? argv[k + 1] : "without a value");
            return usage(problem);
        }
    }
    kj_log_set(print_warning, NULL);
    if (read_digits(opt.data) < 0)
        return 1;
    given = &opt;
    init_network(&now.net, &opt);
    now.epochs = opt.epochs;
    now.first = NOT_BEGUN;
    return train();
}
