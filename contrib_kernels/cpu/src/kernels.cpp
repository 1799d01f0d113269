// The plain C interface: one call, one kernel. Formats are 0 for float32 and 1 for bfloat16.
#include "attention.h"
#include "best.h"
#include "elementwise.h"
#include "few_rows.h"
#include "float_rows.h"
#include "int8.h"
#include "stack.h"

extern "C" {

int jitney_lanes() { return kLanes; }

int jitney_has_few_rows() {
#if defined(__AVX512BF16__)
    return 1;
#else
    return 0;
#endif
}

void jitney_attend(const AttentionCall* call) {
    if (call->is_bf16)
        attend<DotOfBf16, Bf16>(*call);
    else
        attend<FloatDot, float>(*call);
}

void jitney_write_slots(
    const char* from, int64_t head_stride, int64_t token_stride, char* cache, int64_t cache_head_stride,
    const int64_t* slots, int64_t num_heads, int64_t num_tokens, int64_t bytes) {
    write_slots(from, head_stride, token_stride, cache, cache_head_stride, slots, num_heads, num_tokens, bytes);
}

void jitney_rotate_and_write(const RotateCall* call) {
    if (call->is_bf16)
        rotate_and_write<Bf16>(*call);
    else
        rotate_and_write<float>(*call);
}

void jitney_rms_norm(
    const void* states, float* residual, const float* weight, void* normed, int64_t rows, int width, float epsilon,
    int is_bf16) {
    if (is_bf16)
        rms_norm<Bf16>(
            static_cast<const Bf16*>(states), residual, weight, static_cast<Bf16*>(normed), rows, width, epsilon);
    else
        rms_norm<float>(
            static_cast<const float*>(states), residual, weight, static_cast<float*>(normed), rows, width, epsilon);
}

void jitney_gate(const void* joint, void* out, int64_t rows, int width, int activation, int is_bf16) {
    if (is_bf16)
        gate<Bf16>(static_cast<const Bf16*>(joint), static_cast<Bf16*>(out), rows, width, activation);
    else
        gate<float>(static_cast<const float*>(joint), static_cast<float*>(out), rows, width, activation);
}

void jitney_best_tokens(
    const void* logits, int64_t row_stride, int64_t* tokens, int64_t rows, int width, int is_bf16) {
    if (is_bf16)
        best_tokens(static_cast<const Bf16*>(logits), row_stride, tokens, rows, width);
    else
        best_tokens(static_cast<const float*>(logits), row_stride, tokens, rows, width);
}

void jitney_few_rows(
    const void* states, const void* weight, const void* bias, void* out, int rows, int inputs, int outputs,
    int block_outputs, int padded_inputs, int is_bf16) {
#if defined(__AVX512BF16__)
    const Bf16 *x = static_cast<const Bf16*>(states), *b = static_cast<const Bf16*>(bias);
    const Packing packing = {block_outputs, padded_inputs};
    if (is_bf16)
        few_rows_bf16(x, weight, b, static_cast<Bf16*>(out), rows, inputs, outputs, packing);
    else
        few_rows_bf16(x, weight, b, static_cast<float*>(out), rows, inputs, outputs, packing);
#else
    (void)states, (void)weight, (void)bias, (void)out, (void)rows, (void)inputs, (void)outputs, (void)is_bf16;
    (void)block_outputs, (void)padded_inputs;
#endif
}

void jitney_float_rows(const LinearLayer* linear, const float* states, float* out, int64_t rows) {
    float_rows(*linear, states, out, rows);
}

void jitney_run_stack(const StackCall* call) {
#if defined(__AVX512BF16__)
    if (call->is_bf16) return run_stack<DotOfBf16, Bf16>(*call);
#endif
    run_stack<FloatDot, float>(*call);
}

int jitney_has_few_rows_int8() {
#if defined(__AVX512VNNI__)
    return 1;
#else
    return 0;
#endif
}

void jitney_few_rows_int8(
    const void* states, const float* factors, const void* packed, const float* scales, const int32_t* offsets,
    const void* bias, void* out, int rows, int inputs, int outputs, int block_outputs, int padded_inputs,
    int states_are_bf16, int out_is_bf16) {
#if defined(__AVX512VNNI__)
    const Int8Weight weight = {factors, packed, scales, offsets};
    const Packing packing = {block_outputs, padded_inputs};
    const Bf16 *x = static_cast<const Bf16*>(states), *b = static_cast<const Bf16*>(bias);
    const float *floats = static_cast<const float*>(states), *float_bias = static_cast<const float*>(bias);
    if (!states_are_bf16)
        few_rows_int8(floats, weight, float_bias, static_cast<float*>(out), rows, inputs, outputs, packing);
    else if (out_is_bf16)
        few_rows_int8(x, weight, b, static_cast<Bf16*>(out), rows, inputs, outputs, packing);
    else
        few_rows_int8(x, weight, b, static_cast<float*>(out), rows, inputs, outputs, packing);
#else
    (void)states, (void)factors, (void)packed, (void)scales, (void)offsets, (void)bias, (void)out, (void)rows, (void)inputs;
    (void)outputs, (void)block_outputs, (void)padded_inputs, (void)states_are_bf16, (void)out_is_bf16;
#endif
}

void jitney_quantize_rows(
    const void* states, const float* factors, uint8_t* bytes, float* scales, int64_t rows, int size, int is_bf16) {
    if (is_bf16)
        quantize_rows(static_cast<const Bf16*>(states), factors, bytes, scales, rows, size);
    else
        quantize_rows(static_cast<const float*>(states), factors, bytes, scales, rows, size);
}

void jitney_rescale_rows(
    void* products, const float* scales, const void* bias, int64_t rows, int outputs, int is_bf16, int bias_is_bf16) {
    const Bf16* b = static_cast<const Bf16*>(bias);
    const float* float_bias = static_cast<const float*>(bias);
    if (is_bf16)
        rescale_rows(static_cast<Bf16*>(products), scales, b, rows, outputs);
    else if (bias_is_bf16)
        rescale_rows(static_cast<float*>(products), scales, b, rows, outputs);
    else
        rescale_rows(static_cast<float*>(products), scales, float_bias, rows, outputs);
}
}
