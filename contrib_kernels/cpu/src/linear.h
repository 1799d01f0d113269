// A linear layer as the library has it, whatever its weight is held in.
#pragma once

#include "simd.h"

enum WeightFormat { kFloats = 0, kBf16 = 1, kInt8 = 2 };

struct LinearLayer {
    const float* factors;  // of inputs, where rows are multiplied by some before they are rounded to eight bits
    const void* weight;  // packed
    const float* scales;  // of outputs, where the weight is int8
    const int32_t* offsets;
    const void* bias;  // like the states, or null
    int32_t inputs, outputs, block_outputs, padded_inputs;
    int32_t format;
};
