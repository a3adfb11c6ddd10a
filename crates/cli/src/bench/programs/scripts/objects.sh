# 40 objects of $2 / 40 functions each in directory $1, for the linker: each one names others of all objects.
cd "$1" || exit 1
for object in $(seq 0 39); do
  awk -v object="$object" -v all="$2" 'BEGIN {
    each = int(all / 40); x = object + 1
    for (i = 0; i < each; i++) {
      x = (x * 69069 + 12345) % 4294967296
      name = sprintf("a_function_with_a_long_name_%d_%d", object, i)
      printf ".section .text.%s,\"ax\"\n.globl %s\n%s:\n.quad a_function_with_a_long_name_%d_%d\n.quad %d\nret\n", name, name, name, int(x / 4294967296 * 40), x % each, x
    }
  }' | as -o "object$object.o" - || exit 1
done
