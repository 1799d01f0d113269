// The best token of every row of logits, and whether the row's numbers can be trusted.
#pragma once

#include "simd.h"

// Index of the largest element, the first of equals; -1 where that isn't finite, or a NaN is among them.
template <class Element>
static int64_t best_token(const Element* row, int width) {
    constexpr int kPiece = 64 * kLanes;
    float best = -kInfinity;
    int best_piece = 0;
    Ints is_nan = {};
    for (int first = 0; first < width; first += kPiece) {
        const int end = first + kPiece < width ? first + kPiece : width;
        Floats largest = splat(-kInfinity);
        int i = first;
        for (; i + kLanes <= end; i += kLanes) {
            const Floats x = load(row + i);
            is_nan |= x != x;
            largest = x > largest ? x : largest;
        }
        float here = max_of(largest);
        for (; i < end; i++) {
            const float x = to_float(row[i]);
            if (x != x) return -1;
            here = x > here ? x : here;
        }
        if (here > best) best = here, best_piece = first;
    }
    for (int lane = 0; lane < kLanes; lane++)
        if (is_nan[lane]) return -1;
    if (!std::isfinite(best)) return -1;
    int i = best_piece;
    while (to_float(row[i]) != best) i++;
    return i;
}

template <class Element>
static void best_tokens(const Element* logits, int64_t row_stride, int64_t* tokens, int64_t rows, int width) {
#pragma omp parallel for if (rows > 1)
    for (int64_t row = 0; row < rows; row++) tokens[row] = best_token(logits + row * row_stride, width);
}
