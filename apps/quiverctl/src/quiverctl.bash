# Completion of quiverctl: its options, and the commands of the router that runs.
_quiverctl() {
  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
  local -a socket=() words=()
  local at=1 word
  COMPREPLY=()
  # Options come first; the words behind them are a command.
  while ((at < COMP_CWORD)); do
    case ${COMP_WORDS[at]} in
      -s | --socket)
        socket=(--socket "${COMP_WORDS[at + 1]}")
        ((at += 2))
        ;;
      -*) ((at += 1)) ;;
      *) break ;;
    esac
  done
  case $before in
    -s | --socket | --generate)
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
      return
      ;;
  esac
  if ((at < COMP_CWORD)) && [[ ${COMP_WORDS[at]} == apply ]]; then
    if [[ $current == -* ]]; then
      mapfile -t COMPREPLY < <(compgen -W '--plan --own --confirmed --comment --router --json' -- "$current")
    else
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
    fi
    return
  fi
  if ((at == COMP_CWORD)) && [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W '@OPTIONS@' -- "$current")
    return
  fi
  words=("${COMP_WORDS[@]:at:COMP_CWORD-at}" "$current")
  # Not by compgen, which would run what stands in a name.
  while IFS= read -r word; do
    [[ $word != "$current"* ]] || COMPREPLY+=("$(printf %q "$word")")
  done < <(
    quiverctl "${socket[@]}" --complete "${words[*]}" 2>/dev/null
    ((at < COMP_CWORD)) || printf '%s\n' apply doctor exec export schema
  )
}
complete -o default -F _quiverctl quiverctl
