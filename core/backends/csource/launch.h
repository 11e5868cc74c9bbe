/* How generated code runs its kernels: alone, or shared by the threads of the caller's pool. */

typedef void (*InlayKernel)(void *const *restrict args, char *restrict workspace, char *restrict scratch, int64_t begin,
                            int64_t end);

typedef struct InlayLaunch {
  InlayKernel kernel;
  void *const *args;
  char *workspace;
  int64_t scratch, scratch_bytes; /* of slot 0, of each */
  int64_t units;
  int64_t slots; /* parts that may run at the same time */
} InlayLaunch;

static void inlay_run_slots(void *closure, int64_t begin, int64_t end, int32_t worker) {
  const InlayLaunch *l = (const InlayLaunch *)closure;
  (void)worker; /* may be more than there are slots: scratch goes by slot */
  for (int64_t slot = begin; slot < end; ++slot) {
    l->kernel(l->args, l->workspace, l->workspace + l->scratch + slot * l->scratch_bytes, l->units * slot / l->slots,
              l->units * (slot + 1) / l->slots);
  }
}

static inline void inlay_launch(const InlayCallContext *ctx, InlayLaunch l) {
  l.workspace = (char *)ctx->workspace;
  if (l.slots > ctx->num_threads) l.slots = ctx->num_threads;
  if (l.slots <= 1) {
    l.kernel(l.args, l.workspace, l.workspace + l.scratch, 0, l.units);
  } else {
    ctx->parallel_for(ctx->pool, l.slots, inlay_run_slots, &l);
  }
}
