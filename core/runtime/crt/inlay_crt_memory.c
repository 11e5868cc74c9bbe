/* The three functions of <string.h> that generated code calls, or that compilers make of its loops: only for programs
 * without a C library (-nostdlib). Compile this file with -fno-builtin, else its loops become calls of themselves. */
#include <stddef.h>

void *memcpy(void *restrict to, const void *restrict from, size_t bytes);
void *memmove(void *to, const void *from, size_t bytes);
void *memset(void *to, int value, size_t bytes);

void *memcpy(void *restrict to, const void *restrict from, size_t bytes) {
  unsigned char *t = (unsigned char *)to;
  const unsigned char *f = (const unsigned char *)from;
  while (bytes-- > 0) *t++ = *f++;
  return to;
}

void *memmove(void *to, const void *from, size_t bytes) {
  unsigned char *t = (unsigned char *)to;
  const unsigned char *f = (const unsigned char *)from;
  if (t < f) {
    while (bytes-- > 0) *t++ = *f++;
  } else {
    while (bytes-- > 0) t[bytes] = f[bytes];
  }
  return to;
}

void *memset(void *to, int value, size_t bytes) {
  unsigned char *t = (unsigned char *)to;
  while (bytes-- > 0) *t++ = (unsigned char)value;
  return to;
}
