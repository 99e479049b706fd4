export EDITOR=nano
unalias gs
alias la='ls -A'
unset LANG

export PATH=$HOME/bin:$PATH
