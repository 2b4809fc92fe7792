# starts python, as wrappers do
"$PY" "$@"
