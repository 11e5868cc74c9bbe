/* What OpenBLAS asks of OpenMP, answered by "there is one thread": its parts run one after the other on the thread that
 * calls. Linked into OpenBLAS's object and hidden there; an artifact's threads call it from tasks of their own pool. */
int omp_get_max_threads(void) { return 1; }
int omp_get_num_threads(void) { return 1; }
int omp_get_thread_num(void) { return 0; }
int omp_get_num_places(void) { return 0; }
int omp_in_parallel(void) { return 0; }
void omp_set_num_threads(int n) { (void)n; }
void GOMP_parallel(void (*function)(void*), void* data, unsigned num_threads, unsigned flags) {
  (void)num_threads;
  (void)flags;
  function(data);
}
