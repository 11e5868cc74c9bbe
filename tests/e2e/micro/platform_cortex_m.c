/* The least that a program on a Cortex-M needs, without a C library: vectors, memory, and QEMU's semihosting to say
 * something and to end. The stack is painted, so that what a run used of it can be told. */
#include <stdint.h>

#include "platform.h"

#define PAINT 0xa5a5a5a5u

extern uint32_t paint_begin[], paint_end[], stack_top[]; /* mps2_an385.ld */
extern uint32_t data_from[], data_begin[], data_end[], bss_begin[], bss_end[];
int main(void);
void reset(void);
int *__errno(void); /* newlib's libm asks for it */

int *__errno(void) {
  static int value;
  return &value;
}

static int semihosting(int operation, const void *argument) {
  register int r0 __asm__("r0") = operation;
  register const void *r1 __asm__("r1") = argument;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}

void put(const char *text) { semihosting(0x04, text); }

void finish(int code) {
  const uint32_t arguments[2] = {0x20026, (uint32_t)code}; /* ADP_Stopped_ApplicationExit */
  const uint32_t *paint = paint_begin;
  char line[] = "stack 0x00000000\n";
  uint32_t used;
  while (*paint == PAINT) ++paint;
  used = (uint32_t)stack_top - (uint32_t)paint;
  for (int i = 0; i < 8; ++i) line[8 + i] = "0123456789abcdef"[used >> (28 - 4 * i) & 15];
  put(line);
  semihosting(0x20, arguments); /* SYS_EXIT_EXTENDED */
  for (;;) {
  }
}

void reset(void) {
  uint32_t *volatile to = data_begin; /* volatile: no call of memcpy out of this loop */
  const uint32_t *from = data_from;
  while (to < data_end) *to++ = *from++;
  for (to = bss_begin; to < bss_end;) *to++ = 0;
  for (to = paint_begin; to < paint_end;) *to++ = PAINT;
  finish(main());
}

static void fault(void) {
  put("fault\n");
  finish(99);
}

static const struct {
  uint32_t *stack;
  void (*handlers[6])(void);
} vectors __attribute__((section(".vectors"), used)) = {stack_top, {reset, fault, fault, fault, fault, fault}};
