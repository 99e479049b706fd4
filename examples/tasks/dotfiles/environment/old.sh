# before
export PAGER=less
export EDITOR=vi
alias ll='ls -l'
alias gs='git status'
export LANG=C
alias ll='ls -la'
