_ionian() {
    mapfile -t COMPREPLY < <("$1" completions bash -- "${COMP_WORDS[@]:0:COMP_CWORD+1}" 2>/dev/null)
    # The value of a setting follows without a space.
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
    return 0
}
complete -o bashdefault -o default -o nosort -F _ionian ionian
