/* Runs compiled functions on a machine other than the one that compares: cross_ops_test.py makes `cases` and the files.
 *
 *   driver INPUTS OUTPUTS     all cases' inputs one after the other; all outputs, each with its guard */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cross_cases.h"

#define GUARD 256

static void *aligned(size_t bytes, int fill) {
  void *memory = aligned_alloc(64, (bytes + GUARD + 63) / 64 * 64);
  if (memory == NULL) exit(3);
  memset(memory, fill, (bytes + GUARD + 63) / 64 * 64);
  return memory;
}

static void *alloc(void *owner, int64_t bytes) {
  (void)owner;
  return aligned((size_t)bytes, 0);
}

static void set_error(void *owner, int32_t code, const char *message) {
  (void)owner;
  fprintf(stderr, "error %d: %s\n", (int)code, message);
}

int main(int argc, char **argv) {
  FILE *in = argc == 3 ? fopen(argv[1], "rb") : NULL, *out = argc == 3 ? fopen(argv[2], "wb") : NULL;
  if (in == NULL || out == NULL) return 2;
  for (int c = 0; c < NUM_CASES; ++c) {
    const Case *k = &cases[c];
    void *args[64], *constants[64];
    unsigned char *workspace = aligned((size_t)k->workspace, 0xa5);
    InlayCallContext context = {NULL, workspace, 1, 0, NULL, NULL, NULL, alloc, set_error};
    for (int i = 0; i < k->num_inputs + k->num_outputs; ++i) {
      args[i] = aligned((size_t)k->sizes[i], 0xa5);
      constants[i] = i < k->num_inputs && k->constant[i] ? args[i] : NULL;
      if (i < k->num_inputs && fread(args[i], 1, (size_t)k->sizes[i], in) != (size_t)k->sizes[i]) return 4;
    }
    int32_t code = k->init == NULL ? 0 : k->init(&context, constants, &context.state);
    if (code == 0) code = k->run(&context, args);
    for (int i = 0; code == 0 && i < GUARD; ++i) code = workspace[k->workspace + i] == 0xa5 ? 0 : 1000;
    fwrite(&code, 4, 1, out);
    for (int i = k->num_inputs; i < k->num_inputs + k->num_outputs; ++i) {
      fwrite(args[i], 1, (size_t)k->sizes[i] + GUARD, out);
    }
    for (int i = 0; i < k->num_inputs + k->num_outputs; ++i) free(args[i]);
    free(workspace);
  }
  return fclose(out) == 0 ? 0 : 5;
}
