#!/usr/bin/env bash
#: tokenize OPTION...              write a text as a file of token ids for train --tokens, with the
#:                                 tokenizer.json of a Hugging Face model; see tokenize --help
source "${BASH_SOURCE[0]%/*}/../verb.sh"
run tokenize "$@"
