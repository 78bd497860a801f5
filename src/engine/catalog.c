/* SPDX-License-Identifier: Apache-2.0 */
/* What is registered, for help texts and completion. */
#include "engine.h"

#include "errors.h"

static int give_option(const kji_option *options, size_t n, uint64_t index,
                       kj_option_info *ret_option)
{
    if (index >= n)
        return 0;
    const kji_option *o = &options[index];
    const kj_option_info info = {sizeof info, o->type, o->key, o->default_text, o->help};
    kji_give_struct(ret_option, &info, sizeof info);
    return 1;
}

int kj_pruner_get_info(uint64_t index, const char **ret_name, const char **ret_help)
{
    const kji_pruner_ops *ops = kji_pruner_at(index);
    if (!ops)
        return 0;
    *ret_name = ops->name;
    *ret_help = ops->help;
    return 1;
}

int kj_sampler_get_info(uint64_t index, const char **ret_name, const char **ret_help)
{
    const kji_sampler_ops *ops = kji_sampler_at(index);
    if (!ops)
        return 0;
    *ret_name = ops->name;
    *ret_help = ops->help;
    return 1;
}

int kj_pruner_get_option(uint64_t index, uint64_t option, kj_option_info *ret_option)
{
    const kji_pruner_ops *ops = kji_pruner_at(index);
    return ops ? give_option(ops->options, ops->n_options, option, ret_option) : 0;
}

int kj_sampler_get_option(uint64_t index, uint64_t option, kj_option_info *ret_option)
{
    const kji_sampler_ops *ops = kji_sampler_at(index);
    return ops ? give_option(ops->options, ops->n_options, option, ret_option) : 0;
}
