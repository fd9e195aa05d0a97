#compdef ionian
_ionian() {
    local -a offered
    offered=("${(@f)$("${(Q)words[1]}" completions zsh -- "${(@Q)words[1,CURRENT]}" 2>/dev/null)}")
    if [[ -z "$offered" ]]; then
        _files
        return
    fi
    # The value of a setting follows without a space.
    local -a settings=("${(@M)offered:#*=}") others=("${(@)offered:#*=}")
    [[ -z "$settings" ]] || _describe -V ionian settings -S ''
    [[ -z "$others" ]] || _describe -V ionian others
}
if [[ "$funcstack[1]" = _ionian ]]; then
    _ionian "$@"
else
    compdef _ionian ionian
fi
