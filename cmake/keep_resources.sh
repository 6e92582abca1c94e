#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs nvcc (with ccache before it) and keeps what ptxas says of registers, spills and shared memory
# beside the object, as <object>.resources; all else that the compiler says is shown.
object=
previous=
for argument in "$@"; do
  [ "$previous" = "-o" ] && object=$argument
  previous=$argument
done
[ -n "$object" ] || exec "$@"

said=$object.said
"$@" 2>"$said"
status=$?
ptxas='^ptxas info|bytes stack frame|^[[:space:]]*Function properties'
grep -E "$ptxas" "$said" >"$object.resources"
grep -Ev "$ptxas" "$said" >&2
rm -f "$said"
exit $status
