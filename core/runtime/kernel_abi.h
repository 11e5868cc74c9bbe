/* The C ABI between compiled partitions (primitive functions) and whatever runs them: the executor inside an exported
 * library, and the daemon's JIT. Plain C, so that any code generator can meet it.
 *
 * A primitive function p of a StaticLibrary has these symbols:
 *
 *   int32_t p_run(const InlayCallContext* ctx, void* const* args);
 *     args: pointers to the dense row-major data of all inputs, then of all outputs, in the manifest's order.
 *     Every pointer is 64-byte aligned unless it is a caller's own tensor (then aligned to its element); inputs may
 *     alias each other but no output, unless the manifest's in_place says that an output may be an input's memory.
 *     Where the manifest lists symbols (dimensions that its types leave open), one more pointer follows: to their
 *     values, an int64_t each. Returns 0, or an INLAY_E code after ctx->set_error.
 *
 * And where the manifest says has_state:
 *
 *   int32_t p_init(const InlayCallContext* ctx, void* const* args, void** state);
 *     Once per call site when the module is loaded; args as above with only the constant inputs given (others NULL, the
 *     symbols' values too). Packs weights, creates library primitives: all that a later call should not do again.
 *   void p_destroy(void* state);
 *
 * Threads: p_run may be called from several threads at once with the same state and different args and workspaces; so
 * the state is read-only during p_run. parallel_for may be called only from the thread that called p_run, never nested.
 * No primitive function keeps thread-local or global mutable data, throws, or exits.
 */
#ifndef INLAY_CORE_RUNTIME_KERNEL_ABI_H_
#define INLAY_CORE_RUNTIME_KERNEL_ABI_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define INLAY_KERNEL_ABI_VERSION 1

enum { INLAY_OK = 0, INLAY_E_INTERNAL = 1, INLAY_E_NO_MEMORY = 2, INLAY_E_LIBRARY = 3 };

/* Runs one task: indices [begin, end) of the n given to parallel_for. worker is 0 .. num_threads-1, distinct for tasks
 * that run at the same time; a worker may be given several tasks of one parallel_for, one after the other. */
typedef void (*InlayTask)(void* closure, int64_t begin, int64_t end, int32_t worker);

/* Generated code reads these fields by offset: never reorder, only append and raise the version. */
typedef struct InlayCallContext {
  void* state;         /* 0: what p_init made, NULL for a function without state */
  void* workspace;     /* 8: manifest's workspace_bytes, 64-byte aligned, of this call alone */
  int32_t num_threads; /* 16: at most so many tasks run at once */
  int32_t reserved;    /* 20 */
  void* pool;          /* 24: first argument of parallel_for */
  /* 32: splits [0, n) into contiguous ranges, runs them as tasks and returns when all are done. Tasks must not wait for
   * each other: all of them may run on one thread. */
  void (*parallel_for)(void* pool, int64_t n, InlayTask task, void* closure);
  void* owner; /* 40: first argument of alloc and set_error */
  void* (*alloc)(void* owner,
                 int64_t bytes); /* 48: only in p_init: lives as long as the state, 64-byte aligned, zeroed */
  void (*set_error)(void* owner, int32_t code, const char* message); /* 56 */
} InlayCallContext;

typedef int32_t (*InlayRunFunction)(const InlayCallContext* ctx, void* const* args);
typedef int32_t (*InlayInitFunction)(const InlayCallContext* ctx, void* const* args, void** state);
typedef void (*InlayDestroyFunction)(void* state);

#ifdef __cplusplus
}
#endif

#endif /* INLAY_CORE_RUNTIME_KERNEL_ABI_H_ */
