# A server of its own on a socket in directory $1, a load of $2 keys, and its end.
redis-server --port 0 --unixsocket "$1/redis.sock" --save '' --appendonly no --dir "$1" --loglevel warning >/dev/null &
server=$!
until redis-cli -s "$1/redis.sock" ping >/dev/null 2>&1; do
  kill -0 $server || exit 1
  sleep 0.05
done
redis-cli -s "$1/redis.sock" --eval "$1/zipf-redis.lua" , "$2"
status=$?
redis-cli -s "$1/redis.sock" shutdown nosave
wait $server
exit $status
