// What a broken worker binary may do instead of answering, by the name it is started under. For tests.
#include <unistd.h>

#include <cstdio>
#include <cstring>

int main(int argc, char** argv) {
  const char* name = strrchr(argv[0], '/');
  name = name == nullptr ? argv[0] : name + 1;
  if (strcmp(name, "garbage") == 0) {
    const char bytes[] = "\x05\0\0\0hello and more";
    if (write(1, bytes, sizeof(bytes)) < 0) return 1;
  }
  if (strcmp(name, "huge") == 0) {
    const char bytes[] = "\xff\xff\xff\xff";
    if (write(1, bytes, 4) != 4) return 1;
  }
  if (strcmp(name, "exits") == 0) {
    fprintf(stderr, "cannot find libsomething.so\n");
    return 127;
  }
  pause();  // "silent", "huge", "garbage"
}
