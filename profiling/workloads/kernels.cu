// The five CUDA kernels of the suite. kernels.py launches them and says what they compute.
// Scalars are long long because that is what CuPy makes of a Python integer.

constexpr int kChunk = 2048;  // elements that one block keeps in shared memory

// Fast Walsh-Hadamard transform: two butterfly stages in one pass over global memory.
// One thread for four elements that lie `stride` apart.
extern "C" __global__ void walsh_pass(float* data, long long stride) {
  const long long quad = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  float* at = data + quad / stride * 4 * stride + quad % stride;
  const float a = at[0], b = at[stride], c = at[2 * stride], d = at[3 * stride];
  const float sum_even = a + c, sum_odd = b + d, gap_even = a - c, gap_odd = b - d;
  at[0] = sum_even + sum_odd;
  at[stride] = sum_even - sum_odd;
  at[2 * stride] = gap_even + gap_odd;
  at[3 * stride] = gap_even - gap_odd;
}

// The stages inside a chunk, in shared memory; `scale` makes the whole transform orthonormal.
// One block of kChunk / 2 threads for each chunk.
extern "C" __global__ void walsh_chunk(float* data, float scale) {
  __shared__ float chunk[kChunk];
  float* at = data + blockIdx.x * (long long)kChunk;
  const int half = blockDim.x, thread = threadIdx.x;
  chunk[thread] = at[thread];
  chunk[thread + half] = at[thread + half];
  for (int stride = half; stride > 0; stride /= 2) {
    __syncthreads();
    const int low = thread / stride * 2 * stride + thread % stride;
    const float a = chunk[low], b = chunk[low + stride];
    chunk[low] = a + b;
    chunk[low + stride] = a - b;
  }
  __syncthreads();
  at[thread] = chunk[thread] * scale;
  at[thread + half] = chunk[thread + half] * scale;
}

// Sums of rows: block (x, y) adds up every gridDim.x-th part of row y.
extern "C" __global__ void reduce(const float4* in, float* out, long long vectors_per_row) {
  __shared__ float of_warp[32];
  const float4* row = in + blockIdx.y * vectors_per_row;
  float sum = 0;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < vectors_per_row;
       i += gridDim.x * (long long)blockDim.x) {
    const float4 v = row[i];
    sum += (v.x + v.y) + (v.z + v.w);
  }
  for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_down_sync(~0u, sum, lane);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  sum = threadIdx.x < blockDim.x / 32 ? of_warp[threadIdx.x] : 0;
  for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_down_sync(~0u, sum, lane);
  if (threadIdx.x == 0) out[blockIdx.y * gridDim.x + blockIdx.x] = sum;
}

// Transposes square matrices in tiles of 32 x 32; blocks of 32 x 8 threads, grid.z matrices.
extern "C" __global__ void transpose(const float* in, float* out, long long size) {
  __shared__ float tile[32][33];  // a column more, against bank conflicts
  const long long matrix = blockIdx.z * size * size;
  const int column = threadIdx.x, x = blockIdx.x * 32, y = blockIdx.y * 32;
  for (int row = threadIdx.y; row < 32; row += 8)
    tile[row][column] = in[matrix + (y + row) * size + x + column];
  __syncthreads();
  for (int row = threadIdx.y; row < 32; row += 8)
    out[matrix + (x + row) * size + y + column] = tile[column][row];
}

// Bitonic sort. Elements `stride` apart are brought into the order of their run of `span`.
__device__ void order(int& low, int& high, bool ascending) {
  const int a = low, b = high;
  if ((a > b) == ascending) {
    low = b;
    high = a;
  }
}

// All stages with stride < kChunk of the spans first..last, in shared memory; blocks of
// kChunk / 2 threads. `length` is the power of two that is sorted, one array after another.
extern "C" __global__ void sort_chunk(const int* in, int* out, long long length, long long first,
                                      long long last) {
  __shared__ int chunk[kChunk];
  const long long begin = blockIdx.x * (long long)kChunk;
  const int half = blockDim.x, thread = threadIdx.x;
  chunk[thread] = in[begin + thread];
  chunk[thread + half] = in[begin + thread + half];
  for (long long span = first; span <= last; span *= 2) {
    for (int stride = min(span, (long long)kChunk) / 2; stride > 0; stride /= 2) {
      __syncthreads();
      const int low = thread / stride * 2 * stride + thread % stride;
      order(chunk[low], chunk[low + stride], (((begin + low) & (length - 1)) & span) == 0);
    }
  }
  __syncthreads();
  out[begin + thread] = chunk[thread];
  out[begin + thread + half] = chunk[thread + half];
}

// One stage with a larger stride; one thread for each pair.
extern "C" __global__ void sort_pass(int* data, long long length, long long span,
                                     long long stride) {
  const long long pair = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  const long long low = pair / stride * 2 * stride + pair % stride;
  order(data[low], data[low + stride], ((low & (length - 1)) & span) == 0);
}

// c = a b for square row-major matrices, grid.z of them. A block of 256 threads makes a tile of
// 128 x 128 from slices of 8; a thread has 8 x 8 results, in four groups of 4 x 4 so that
// neighbours read neighbouring banks. The next slice is fetched while this one is used.
extern "C" __global__ void __launch_bounds__(256)
    gemm(const float* all_a, const float* all_b, float* all_c, long long size) {
  __shared__ float a_slice[8][128], b_slice[8][128];
  const long long matrix = blockIdx.z * size * size;
  const long long row0 = blockIdx.y * 128LL, column0 = blockIdx.x * 128LL;
  const int thread = threadIdx.x;
  const int a_row = thread / 2, a_k = thread % 2 * 4, b_k = thread / 32, b_column = thread % 32 * 4;
  const float* a = all_a + matrix + (row0 + a_row) * size + a_k;
  const float* b = all_b + matrix + b_k * size + column0 + b_column;
  const int row = thread / 16 * 4, column = thread % 16 * 4;
  float sum[8][8] = {};
  float4 next_a = *(const float4*)a, next_b = *(const float4*)b;
  for (long long k = 0; k < size; k += 8) {
    a_slice[a_k + 0][a_row] = next_a.x;
    a_slice[a_k + 1][a_row] = next_a.y;
    a_slice[a_k + 2][a_row] = next_a.z;
    a_slice[a_k + 3][a_row] = next_a.w;
    *(float4*)&b_slice[b_k][b_column] = next_b;
    __syncthreads();
    if (k + 8 < size) {
      next_a = *(const float4*)(a + k + 8);
      next_b = *(const float4*)(b + (k + 8) * size);
    }
#pragma unroll
    for (int step = 0; step < 8; ++step) {
      float left[8], right[8];
      *(float4*)&left[0] = *(const float4*)&a_slice[step][row];
      *(float4*)&left[4] = *(const float4*)&a_slice[step][row + 64];
      *(float4*)&right[0] = *(const float4*)&b_slice[step][column];
      *(float4*)&right[4] = *(const float4*)&b_slice[step][column + 64];
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j) sum[i][j] += left[i] * right[j];
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    float* c = all_c + matrix + (row0 + row + i % 4 + i / 4 * 64) * size + column0 + column;
    *(float4*)c = *(const float4*)&sum[i][0];
    *(float4*)(c + 64) = *(const float4*)&sum[i][4];
  }
}
