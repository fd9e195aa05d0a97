function __ionian_offered
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    set -l offered ($words[1] completions fish -- $words "$word" 2>/dev/null)
    if set -q offered[1]
        printf '%s\n' $offered
    else
        __fish_complete_path "$word"
    end
end
complete -c ionian -f -a '(__ionian_offered)'
