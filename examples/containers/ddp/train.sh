#!/bin/sh
# One step of data-parallel training, in shell: all workers add up their gradients (an all-reduce).
# The master takes one number from each worker at MASTER_PORT, and gives the sum at the next port.
gradient=$(((RANK + 1) * 10))
reply=$((MASTER_PORT + 1))
if [ "$RANK" = 0 ]; then
  sum=$gradient
  for _ in $(seq 2 "$WORLD_SIZE"); do
    sum=$((sum + $(nc -l -p "$MASTER_PORT")))
  done
  for _ in $(seq 2 "$WORLD_SIZE"); do
    echo "$sum" | nc -l -p "$reply" > /dev/null
  done
else
  until echo "$gradient" | nc "$MASTER_ADDR" "$MASTER_PORT" 2> /dev/null; do sleep 0.2; done
  until sum=$(nc "$MASTER_ADDR" "$reply" < /dev/null 2> /dev/null) && [ -n "$sum" ]; do sleep 0.2; done
fi
echo "rank $RANK of $WORLD_SIZE: the sum of all gradients is $sum"
