/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small network (64 - units - 10) learns handwritten digits by stochastic gradient descent with
 * momentum, and can be steered while it does:
 *
 *     digits --epochs 200 --step-ms 2 &
 *     kajitori set lr=0.01            a parameter, with a type and a range
 *     kajitori send "shake scale=0.1" a verb of this program's own
 *     kajitori stop --at epoch --reason "good enough"
 *
 * What makes it steerable: kj_run_open, kj_run_add_param, kj_run_add_verb, and in the loop
 * kj_run_begin_epoch, kj_run_begin_step, kj_run_report, kj_run_end_epoch. The rest is the training.
 */
#include <kajitori.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PIXELS = 64, CLASSES = 10, MAX_UNITS = 1024, BATCH = 32, TRAINING = 1437, MAX_ROWS = 1797 };

#define USAGE                                                                                 \
    "usage: digits [--epochs N] [--lr X] [--units N] [--seed N] [--fifo PATH] [--step-ms N] " \
    "[--data "                                                                                \
    "FILE]"

typedef struct options {
    long epochs;
    double lr;
    long units;
    long seed;
    long step_ms;
    const char *fifo;
    const char *data;
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

typedef struct digits {
    int n;
    float pixels[MAX_ROWS][PIXELS];
    int label[MAX_ROWS];
} digits;

typedef struct score {
    double loss;
    double accuracy;
} score;

static network net;
static digits data;

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

static int add_steering(kj_run *run, network *n, kj_error *err)
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
    kj_arg scale = {.size = sizeof scale,
                    .type = KJ_TYPE_FLOAT,
                    .name = "scale",
                    .help = "standard deviation of the noise [0.05]",
                    .flags = KJ_ARG_MIN | KJ_ARG_MAX,
                    .min = 0,
                    .max = 10};
    kj_verb verb = {.size = sizeof verb,
                    .name = "shake",
                    .help = "shake [scale=S]: adds noise to the weights of the first layer",
                    .args = &scale,
                    .n_args = 1,
                    .run = shake,
                    .userdata = n};
    int r = kj_run_add_param(run, &lr, err);
    if (r >= 0)
        r = kj_run_add_param(run, &momentum, err);
    if (r >= 0)
        r = kj_run_add_verb(run, &verb, err);
    return r;
}

/* The slowness of a larger model. */
static void idle(long ms)
{
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (ms > 0 && nanosleep(&left, &left) != 0)
        ;
}

/* One epoch. Returns whether the training was asked to stop. */
static int train_epoch(kj_run *run, network *n, const options *opt, long epoch, int64_t *step)
{
    int rows[TRAINING], batches = 0;
    double loss = 0;
    for (int k = 0; k < TRAINING; k++)
        rows[k] = k;
    shuffle(n, rows, TRAINING);
    kj_run_set_phase(run, "train");
    kj_run_begin_epoch(run, epoch);
    for (int first = 0; first < TRAINING; first += BATCH, ++*step) {
        if (kj_run_begin_step(run, *step) & KJ_RUN_STOP)
            break;
        int size = TRAINING - first < BATCH ? TRAINING - first : BATCH;
        loss += train_batch(n, rows + first, size);
        batches++;
        idle(opt->step_ms);
    }
    kj_run_set_phase(run, "validation");
    score result = validate(n);
    loss = batches ? loss / batches : NAN;
    kj_run_report(run, "train/loss", *step, loss, NULL);
    kj_run_report(run, "validation/loss", *step, result.loss, NULL);
    kj_run_report(run, "validation/accuracy", *step, result.accuracy, NULL);
    printf("epoch %ld train_loss=%.6g val_loss=%.6g val_acc=%.4f\n", epoch, loss, result.loss,
           result.accuracy);
    fflush(stdout);
    return kj_run_end_epoch(run, epoch) & KJ_RUN_STOP;
}

static int train(const options *opt)
{
    kj_error err = KJ_ERROR_INIT;
    kj_run_options run_options = KJ_RUN_OPTIONS_INIT;
    kj_run *run;
    int64_t step = 0;
    long epoch = 0;
    int stopped = 0;
    run_options.name = "digits";
    run_options.fifo_path = opt->fifo;
    run_options.flags = KJ_RUN_LISTEN_LATER; /* until all is registered */
    run_options.total_epochs = opt->epochs;
    run_options.total_steps = opt->epochs * ((TRAINING + BATCH - 1) / BATCH);
    if (kj_run_open(&run_options, &run, &err) < 0 || add_steering(run, &net, &err) < 0 ||
        kj_run_listen(run, &err) < 0) {
        fprintf(stderr, "digits: %s\n", err.message);
        return 1;
    }
    printf("run %s\n", kj_run_id(run));
    fflush(stdout);
    for (; epoch < opt->epochs && !stopped; epoch++)
        stopped = train_epoch(run, &net, opt, epoch, &step);
    if (stopped)
        printf("stopped at step %lld, epoch %ld%s%s\n", (long long)step, epoch - 1,
               *kj_run_stop_reason(run) ? ": " : "", kj_run_stop_reason(run));
    else
        printf("finished at step %lld, epoch %ld\n", (long long)step, epoch);
    kj_run_close(run);
    return 0;
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
    else
        return -1;
    return 0;
}

int main(int argc, char **argv)
{
    options opt = {.epochs = 20, .lr = 0.05, .units = 32, .data = DIGITS_CSV};
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
    init_network(&net, &opt);
    return train(&opt);
}
