/* inlay's C runtime: what a model compiled with runtime "crt" needs besides its own sources. C11 without extensions
 * (and C++ for who includes it), no heap, no dependency, no state but the list of registered models.
 *
 * A model is its generated header <prefix>_<model>.h; this one has the error codes and the registry ("system library")
 * by which functions are found by name. core/runtime/crt/README.md. */
#ifndef INLAY_CRT_H_
#define INLAY_CRT_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#define INLAY_CRT_ALIGN(bytes) alignas(bytes)
#else
#define INLAY_CRT_ALIGN(bytes) _Alignas(bytes)
#endif

#define INLAY_CRT_VERSION 1

enum {
  INLAY_CRT_OK = 0,
  INLAY_CRT_E_NULL = -1,      /* an argument, or one of its pointers, is NULL */
  INLAY_CRT_E_ALIGNMENT = -2, /* the workspace, or a tensor, is not aligned as its type */
  INLAY_CRT_E_ARGUMENTS = -3  /* another number of arguments than the function has */
};

/* A function of the registry: pointers to its inputs, its outputs, and its workspace, in that order. A function that
 * needs no workspace takes (and ignores) NULL for it. */
typedef int32_t (*InlayCrtFunction)(void *const *args, int32_t num_args);

typedef struct InlayCrtEntry {
  const char *name;
  InlayCrtFunction function;
} InlayCrtEntry;

/* A model's functions. Defined by generated code; it must stay where it is as long as it is registered. */
typedef struct InlayCrtModule {
  const char *name;
  const InlayCrtEntry *entries;
  int32_t num_entries;
  struct InlayCrtModule *next;
} InlayCrtModule;

/* Adds a model; one that is there already stays. Not from an interrupt, nor while another task looks something up. */
void inlay_crt_register(InlayCrtModule *module);
/* NULL: no registered model has a function of that name. */
InlayCrtFunction inlay_crt_lookup(const char *name);

#ifdef __cplusplus
}
#endif

#endif /* INLAY_CRT_H_ */
