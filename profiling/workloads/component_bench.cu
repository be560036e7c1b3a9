// Kernels that keep one part of the GPU busy and little else. component_bench.py launches them and
// says what they compute. Scalars are long long because that is what CuPy makes of an integer.

constexpr int kChains = 4;  // independent ones of each thread, so that none waits for itself

// Warps that hold an SM and compute next to nothing.
extern "C" __global__ void spin(int* out, long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
  out[blockIdx.x * (long long)blockDim.x + threadIdx.x] = 1;
}

// FP32: each pair of numbers turns by one angle, so that its bits go on changing.
extern "C" __global__ void fp32(const float2* in, float2* out, float cosine, float sine,
                                long long steps) {
  const long long first = (blockIdx.x * (long long)blockDim.x + threadIdx.x) * kChains;
  float2 at[kChains];
  for (int n = 0; n < kChains; ++n) at[n] = in[first + n];
  for (long long step = 0; step < steps; ++step)
#pragma unroll
    for (int n = 0; n < kChains; ++n) {
      const float x = at[n].x, y = at[n].y;
      at[n].x = fmaf(cosine, x, -sine * y);
      at[n].y = fmaf(sine, x, cosine * y);
    }
  for (int n = 0; n < kChains; ++n) out[first + n] = at[n];
}

// Integers: x = x * 1664525 + 1013904223 modulo 2^32 (Numerical Recipes).
extern "C" __global__ void integer(const unsigned* in, unsigned* out, long long steps) {
  const long long first = (blockIdx.x * (long long)blockDim.x + threadIdx.x) * kChains;
  unsigned at[kChains];
  for (int n = 0; n < kChains; ++n) at[n] = in[first + n];
  for (long long step = 0; step < steps; ++step)
#pragma unroll
    for (int n = 0; n < kChains; ++n) at[n] = at[n] * 1664525u + 1013904223u;
  for (int n = 0; n < kChains; ++n) out[first + n] = at[n];
}

// Shared memory: the values of a block move by one place in each step.
extern "C" __global__ void __launch_bounds__(1024)
    shared(const int* in, int* out, long long steps) {
  __shared__ int values[1024];
  const long long at = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  values[threadIdx.x] = in[at];
  for (long long step = 0; step < steps; ++step) {
    __syncthreads();
    const int next = values[(threadIdx.x + 1) % blockDim.x];
    __syncthreads();
    values[threadIdx.x] = next;
  }
  out[at] = values[threadIdx.x];
}

// Tensor cores: c is the product of a (16 rows) and b (8 columns), added and taken away alternately;
// an odd number of steps leaves the product. One warp for each pair of tiles, one in a block.
// Places of values in registers: PTX ISA, "Matrix Fragments for mma.m16n8k16" and "m16n8k32".
template <typename Multiply>
__device__ void tensor(const unsigned* a, const unsigned* b, float* c, long long steps,
                       unsigned signs, Multiply multiply) {
  const int lane = threadIdx.x, group = lane / 4, place = lane % 4, words = 8;
  a += blockIdx.x * (long long)(16 * words);
  b += blockIdx.x * (long long)(8 * words);  // b lies by columns
  c += blockIdx.x * 16LL * 8;
  const unsigned rows[4] = {a[group * words + place], a[(group + 8) * words + place],
                            a[group * words + place + 4], a[(group + 8) * words + place + 4]};
  unsigned columns[2] = {b[group * words + place], b[group * words + place + 4]};
  float sum[4] = {0, 0, 0, 0};
  for (long long step = 0; step < steps; ++step) {
    multiply(sum, rows, columns);
    columns[0] ^= signs;
    columns[1] ^= signs;
  }
  c[group * 8 + place * 2] = sum[0];
  c[group * 8 + place * 2 + 1] = sum[1];
  c[(group + 8) * 8 + place * 2] = sum[2];
  c[(group + 8) * 8 + place * 2 + 1] = sum[3];
}

extern "C" __global__ void tensor_bf16(const unsigned* a, const unsigned* b, float* c,
                                       long long steps) {
  tensor(a, b, c, steps, 0x80008000u, [](float* d, const unsigned* x, const unsigned* y) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
  });
}

#if __CUDA_ARCH__ >= 890  // cards before that have no fp8
extern "C" __global__ void tensor_fp8(const unsigned* a, const unsigned* b, float* c,
                                      long long steps) {
  tensor(a, b, c, steps, 0x80808080u, [](float* d, const unsigned* x, const unsigned* y) {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
  });
}
#endif

// Memory, or L2 where both arrays fit into it: a copy, `steps` times.
extern "C" __global__ void copy(const float4* in, float4* out, long long vectors,
                                long long steps) {
  const long long stride = gridDim.x * (long long)blockDim.x;
  for (long long step = 0; step < steps; ++step)
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < vectors; i += stride)
      __stcg(out + i, __ldcg(in + i));
}

// Memory: writes alone, of numbers without a pattern.
extern "C" __global__ void fill(uint4* out, long long vectors) {
  const long long stride = gridDim.x * (long long)blockDim.x;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < vectors; i += stride) {
    const unsigned first = 4 * (unsigned)i;
    out[i] = make_uint4(first * 2654435761u, (first + 1) * 2654435761u, (first + 2) * 2654435761u,
                        (first + 3) * 2654435761u);
  }
}
