/* SPDX-License-Identifier: Apache-2.0 */
#include "sending.h"

static int run_checkpoint(int n_words, const char *const *words)
{
    return cli_send_declared_verb("checkpoint", n_words, words);
}

static const cli_example examples[] = {
    {"kajitori checkpoint", "of the only live run; the reply says where it lies"},
    {"kajitori checkpoint digits --at epoch", "at the end of the epoch that runs"},
    {NULL, NULL},
};

const cli_command cli_checkpoint = {
    .name = "checkpoint",
    .usage = "[RUN] [KEY=VALUE...] [OPTIONS]",
    .summary = "have a run save a checkpoint now",
    .description =
        "The program saves all that a resumed training needs, and the training goes on. The reply "
        "comes when that is done, and says where the checkpoint lies. Which KEYs there are, the "
        "program says: kajitori send help. A program that has no checkpoint refuses it.",
    .options = cli_sending_options,
    .formats = CLI_SENDING_FORMATS,
    .flags = CLI_SENDING_FLAGS,
    .examples = examples,
    .see_also = "evaluate stop pause send",
    .run = run_checkpoint,
};
