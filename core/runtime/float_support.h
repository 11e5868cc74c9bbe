/* Conversions between floating-point types that LLVM calls by these names (core/runtime/float_support.c). The narrow
 * types are declared as _Float16 whatever they hold: the ABI is the same, only the bits count. */
#ifndef INLAY_CORE_RUNTIME_FLOAT_SUPPORT_H_
#define INLAY_CORE_RUNTIME_FLOAT_SUPPORT_H_

#ifdef __cplusplus
extern "C" {
#endif

/* A bf16 in the bits of the result. */
_Float16 __truncsfbf2(float x);
_Float16 __truncdfbf2(double x);

#ifdef __cplusplus
}
#endif

#endif /* INLAY_CORE_RUNTIME_FLOAT_SUPPORT_H_ */
