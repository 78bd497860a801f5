# SPDX-License-Identifier: Apache-2.0
# Bash completion of kajitori: verbs, options and run ids, asked from the command itself.

_kajitori_runs()
{
    kajitori ps -q --format value 2>/dev/null | cut -f1
}

_kajitori()
{
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]}
    COMPREPLY=()
    if (( COMP_CWORD == 1 )); then
        mapfile -t COMPREPLY < <(compgen -W "$(kajitori help --words 2>/dev/null) --help --version" -- "$word")
        return
    fi
    case $before in
    --format)
        mapfile -t COMPREPLY < <(compgen -W "table json jsonl csv yaml value $([[ $verb == events ]] && echo npz)" -- "$word")
        return ;;
    --merge)
        mapfile -t COMPREPLY < <(compgen -W "all last first" -- "$word")
        return ;;
    --wait)
        mapfile -t COMPREPLY < <(compgen -W "received accepted applied done" -- "$word")
        return ;;
    --at)
        mapfile -t COMPREPLY < <(compgen -W "now epoch epoch: step:" -- "$word")
        return ;;
    --run | -r)
        [[ $verb == events ]] && return
        mapfile -t COMPREPLY < <(compgen -W "$(_kajitori_runs)" -- "$word")
        return ;;
    --level)
        mapfile -t COMPREPLY < <(compgen -W "hold leave" -- "$word")
        return ;;
    --validate)
        mapfile -t COMPREPLY < <(compgen -W "yes no" -- "$word")
        return ;;
    --schedule | --output | -o | --cursor)
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        return ;;
    --host)
        mapfile -t COMPREPLY < <(compgen -A hostname -- "$word")
        return ;;
    --pruner | --sampler)
        mapfile -t COMPREPLY < <(compgen -W "help $(kajitori tune "$before" help 2>/dev/null | sed -n 's/^\([a-z][^ ]*\).*/\1/p')" -- "$word")
        return ;;
    --runtime-dir | --state-dir | --trials-dir | --repair | --events)
        mapfile -t COMPREPLY < <(compgen -d -- "$word")
        return ;;
    esac
    if [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(kajitori help --words "$verb" 2>/dev/null)" -- "$word")
        return
    fi
    case $verb in
    help)
        mapfile -t COMPREPLY < <(compgen -W "$(kajitori help --words 2>/dev/null)" -- "$word") ;;
    events)
        mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
    status | watch | stop | abort | pause | resume | checkpoint | evaluate | extend | prune | recover | set | get | params | note | ping | send | log)
        mapfile -t COMPREPLY < <(compgen -W "$(_kajitori_runs)" -- "$word") ;;
    esac
}
complete -o default -F _kajitori kajitori
