// A whole stack of plain layers for a few rows: the kernels of this library one after another, without a word to Python
// in between.
#pragma once

#include "attention.h"
#include "elementwise.h"
#include "few_rows.h"
#include "int8.h"

// A linear layer of bfloat16 weights, or of int8 weights where there are scales.
struct LinearLayer {
    const float* factors;
    const void* weight;  // packed
    const float* scales;
    const int32_t* offsets;
    const Bf16* bias;
    int32_t inputs, outputs, block_outputs, padded_inputs;
};

struct StackedLayer {
    LinearLayer joint, output, gate_up, down;
    const float *before_attention, *before_mlp;  // weights of norms
    float attention_epsilon, mlp_epsilon;
    int32_t activation, plan;  // which of the pass's plans of attention
    RotateCall heads;  // filled in but for what differs from pass to pass
};

struct StackCall {
    const StackedLayer* layers;
    const AttentionCall* const* plans;  // filled in but for what differs from layer to layer
    const Bf16* states;  // [rows][width], like the answer
    Bf16* out;
    float* residual;  // room for [rows][width], like `normed` and `answer`
    Bf16 *normed, *answer;
    Bf16 *wide;  // room for the rows of the widest joint product, ...
    Bf16 *narrow;  // ... and of what is made of it
    const Bf16 *cosines, *sines;
    int64_t angle_stride;
    const int64_t* slots;
    int32_t num_layers, num_rows, num_tokens, width, rotary_size;  // rows beyond the tokens are idle
};

#if defined(__AVX512BF16__)

static void multiply(const LinearLayer& linear, const Bf16* states, Bf16* out, int rows) {
    const Packing packing = {linear.block_outputs, linear.padded_inputs};
    if (!linear.scales)
        return few_rows_bf16(states, linear.weight, linear.bias, out, rows, linear.inputs, linear.outputs, packing);
    const Int8Weight weight = {linear.factors, linear.weight, linear.scales, linear.offsets};
    few_rows_int8(states, weight, linear.bias, out, rows, linear.inputs, linear.outputs, packing);
}

// Heads rotated, keys and values stored, queries answered into `narrow`.
static void attend_layer(const StackCall& call, const StackedLayer& layer) {
    RotateCall heads = layer.heads;
    heads.joint = call.wide, heads.joint_stride = layer.joint.outputs;
    heads.cosines = call.cosines, heads.sines = call.sines, heads.angle_stride = call.angle_stride;
    heads.rotary_size = call.rotary_size;
    heads.slots = call.slots, heads.num_tokens = call.num_tokens;
    rotate_and_write<Bf16>(heads);
    AttentionCall attention = *call.plans[layer.plan];
    attention.query = call.wide;
    attention.query_head_stride = heads.size, attention.query_token_stride = heads.joint_stride;
    attention.keys = heads.keys, attention.values = heads.values;
    attention.key_head_stride = heads.key_head_stride, attention.value_head_stride = heads.value_head_stride;
    attention.output = call.narrow, attention.output_token_stride = layer.output.inputs;
    attention.sinks = nullptr;
    attend<DotOfBf16, Bf16>(attention);
    const int64_t written = int64_t(call.num_tokens) * layer.output.inputs;
    std::memset(call.narrow + written, 0, (int64_t(call.num_rows) * layer.output.inputs - written) * sizeof(Bf16));
}

static void run_stack(const StackCall& call) {
    const int rows = call.num_rows, width = call.width, elements = rows * width;
    each_vector(elements, [&](int i, int count) {
        store_some(call.residual + i, load_some(call.states + i, count), count);
    });
    for (int index = 0; index < call.num_layers; index++) {
        const StackedLayer& layer = call.layers[index];
        rms_norm<Bf16>(
            index ? call.answer : call.states, index ? call.residual : nullptr, layer.before_attention, call.normed,
            rows, width, layer.attention_epsilon);
        multiply(layer.joint, call.normed, call.wide, rows);
        attend_layer(call, layer);
        multiply(layer.output, call.narrow, call.answer, rows);
        rms_norm<Bf16>(call.answer, call.residual, layer.before_mlp, call.normed, rows, width, layer.mlp_epsilon);
        multiply(layer.gate_up, call.normed, call.wide, rows);
        gate<Bf16>(call.wide, call.narrow, rows, layer.down.inputs, layer.activation);
        multiply(layer.down, call.narrow, call.answer, rows);
    }
    each_vector(elements, [&](int i, int count) {
        store_some(call.out + i, load_some(call.residual + i, count) + load_some(call.answer + i, count), count);
    });
}

#endif
