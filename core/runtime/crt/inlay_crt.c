#include "inlay_crt.h"

#include <stddef.h>

static InlayCrtModule *modules;

void inlay_crt_register(InlayCrtModule *module) {
  for (InlayCrtModule *m = modules; m != NULL; m = m->next) {
    if (m == module) return;
  }
  module->next = modules;
  modules = module;
}

static int equal(const char *a, const char *b) {
  for (; *a != '\0' && *a == *b; ++a, ++b) {
  }
  return *a == *b;
}

InlayCrtFunction inlay_crt_lookup(const char *name) {
  for (const InlayCrtModule *m = modules; m != NULL; m = m->next) {
    for (int32_t i = 0; i < m->num_entries; ++i) {
      if (equal(m->entries[i].name, name)) return m->entries[i].function;
    }
  }
  return NULL;
}
