// Blocks that last a given time. short_kernels.ptx is this file for Volta and later:
//   nvcc -ptx -arch=compute_70 short_kernels.cu     (CUDA 12)

extern "C" __global__ void spin(unsigned long long length_ns) {
  unsigned long long begun, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begun));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begun < length_ns);
}
