/* SPDX-License-Identifier: Apache-2.0 */
/* Two meanings of one word: a paused run goes on, and one that left is started again. */
#include "group.h"
#include "relaunch.h"
#include "sending.h"

static int again, detach, print;
static const struct poptOption options[] = {
    {"again", 0, POPT_ARG_NONE, &again, 0, "start a run again that ended in another way, too",
     NULL},
    {"detach", 0, POPT_ARG_NONE, &detach, 0,
     "start it in a session of its own, its output in the file output.log beside its journal",
     NULL},
    {"print", 0, POPT_ARG_NONE, &print, 0, "only print the shell command that would start it",
     NULL},
    CLI_INCLUDE(cli_sending_options),
    POPT_TABLEEND,
};

static int run_resume(int n_words, const char *const *words)
{
    int status = cli_take_sending_words(NULL, &n_words, &words);
    if (status != CLI_DONE)
        return status;
    const char *run = cli_take_run(&n_words, &words);
    if (n_words > 0)
        return cli_too_many(words[0]);
    unsigned flags = (again ? CLI_RELAUNCH_ANY : 0) | (detach ? CLI_RELAUNCH_DETACH : 0) |
                     (print ? CLI_RELAUNCH_PRINT : 0);
    const char *name = run ? run : cli.run;
    if (flags && cli_group_given())
        return cli_usage("runs that have ended are started again one by one");
    if (name && !*name)
        return cli_usage("the name of the run is empty");
    if (flags || (name && !cli_names_run(name)))
        return cli_relaunch(name, flags);
    status = cli_send_command(run, cli_new_command("resume", NULL), KJ_WAIT_APPLIED);
    if (status == CLI_NO_RUN && !name && !cli_group_given())
        cli_note("a run that left is started again by its name: kajitori resume RUN");
    return status;
}

static const cli_example examples[] = {
    {"kajitori resume", "let the only live run go on"},
    {"kajitori resume digits --detach", "start a run that left again, in the background"},
    {"kajitori resume digits --again", "likewise one that died or was stopped"},
    {"WANDB_TOKEN=... kajitori resume digits", "a secret of its command line, which is not kept"},
    {NULL, NULL},
};

const cli_command cli_resume = {
    .name = "resume",
    .usage = "[RUN] [OPTIONS]",
    .summary = "let a paused run go on, or start one again that left",
    .description =
        "Ends a pause. A run that is not paused answers that this is done already.\n\nA run that "
        "left (pause --level leave) is started again: its recorded command line, in its folder, "
        "with the same id and KAJITORI_CHECKPOINT, the checkpoint to go on from. The program takes "
        "the place of this command, unless --detach is given. The environment is the one of this "
        "command.\n\nSecrets of the command line were not kept (***). The value of --wandb-token "
        "is "
        "taken from $WANDB_TOKEN, any argument N (the program is 0) as a whole from "
        "$KAJITORI_ARG_N.",
    .options = options,
    .formats = CLI_SENDING_FORMATS,
    .flags = CLI_SENDING_FLAGS | CLI_TAKES_STATE,
    .examples = examples,
    .see_also = "pause status",
    .run = run_resume,
};
