// A whole stack of plain layers for a few rows: the kernels of this library one after another, without a word to Python
// in between.
#pragma once

#include "attention.h"
#include "elementwise.h"
#include "few_rows.h"
#include "float_rows.h"
#include "int8.h"

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
    const void* states;  // [rows][width], like the answer
    void* out;
    float* residual;  // room for [rows][width], like `normed` and `answer`
    void *normed, *answer;
    void *wide;  // room for the rows of the widest joint product, ...
    void *narrow;  // ... and of what is made of it
    const void *cosines, *sines;
    int64_t angle_stride;
    const int64_t* slots;
    int32_t num_layers, num_rows, num_tokens, width, rotary_size, is_bf16;  // rows beyond the tokens are idle
};

static inline void multiply(const LinearLayer& linear, const float* states, float* out, int rows) {
    float_rows(linear, states, out, rows);
}

#if defined(__AVX512BF16__)
static inline void multiply(const LinearLayer& linear, const Bf16* states, Bf16* out, int rows) {
    const Packing packing = {linear.block_outputs, linear.padded_inputs};
    const Bf16* bias = static_cast<const Bf16*>(linear.bias);
    if (linear.format == kBf16)
        return few_rows_bf16(states, linear.weight, bias, out, rows, linear.inputs, linear.outputs, packing);
    const Int8Weight weight = {linear.factors, linear.weight, linear.scales, linear.offsets};
    few_rows_int8(states, weight, bias, out, rows, linear.inputs, linear.outputs, packing);
}
#endif

// Heads rotated, keys and values stored, queries answered into `narrow`.
template <class Dot, class Element>
static void attend_layer(const StackCall& call, const StackedLayer& layer, Element* wide, Element* narrow) {
    RotateCall heads = layer.heads;
    heads.joint = wide, heads.joint_stride = layer.joint.outputs;
    heads.cosines = call.cosines, heads.sines = call.sines, heads.angle_stride = call.angle_stride;
    heads.rotary_size = call.rotary_size;
    heads.slots = call.slots, heads.num_tokens = call.num_tokens;
    rotate_and_write<Element>(heads);
    AttentionCall attention = *call.plans[layer.plan];
    attention.query = wide;
    attention.query_head_stride = heads.size, attention.query_token_stride = heads.joint_stride;
    attention.keys = heads.keys, attention.values = heads.values;
    attention.key_head_stride = heads.key_head_stride, attention.value_head_stride = heads.value_head_stride;
    attention.output = narrow, attention.output_token_stride = layer.output.inputs;
    attention.sinks = nullptr;
    attend<Dot, Element>(attention);
    const int64_t written = int64_t(call.num_tokens) * layer.output.inputs;
    std::memset(narrow + written, 0, (int64_t(call.num_rows) * layer.output.inputs - written) * sizeof(Element));
}

template <class Dot, class Element>
static void run_stack(const StackCall& call) {
    const int rows = call.num_rows, width = call.width, elements = rows * width;
    const Element* states = static_cast<const Element*>(call.states);
    Element *out = static_cast<Element*>(call.out), *normed = static_cast<Element*>(call.normed);
    Element *answer = static_cast<Element*>(call.answer);
    Element *wide = static_cast<Element*>(call.wide), *narrow = static_cast<Element*>(call.narrow);
    each_vector(elements, [&](int i, int count) {
        store_some(call.residual + i, load_some(states + i, count), count);
    });
    for (int index = 0; index < call.num_layers; index++) {
        const StackedLayer& layer = call.layers[index];
        rms_norm<Element>(
            index ? answer : states, index ? call.residual : nullptr, layer.before_attention, normed, rows, width,
            layer.attention_epsilon);
        multiply(layer.joint, normed, wide, rows);
        attend_layer<Dot>(call, layer, wide, narrow);
        multiply(layer.output, narrow, answer, rows);
        rms_norm<Element>(answer, call.residual, layer.before_mlp, normed, rows, width, layer.mlp_epsilon);
        multiply(layer.gate_up, normed, wide, rows);
        gate<Element>(wide, narrow, rows, layer.down.inputs, layer.activation);
        multiply(layer.down, narrow, answer, rows);
    }
    each_vector(elements, [&](int i, int count) {
        store_some(out + i, load_some(call.residual + i, count) + load_some(answer + i, count), count);
    });
}
