/* A libcuda.so.1 with the calls of the probe and of a job; it falls back in silence as the real one.
 *
 * A client of a daemon (its process named in $CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid
 * is alive) gets SMs by CUDA_MPS_ACTIVE_THREAD_PERCENTAGE, or by the percentage of the server where
 * that is less: rounded down to even, 8 at least. 0, negative, above 100 and anything that is no
 * number is 100. CUDA_MPS_PINNED_DEVICE_MEM_LIMIT, "0=1000M", bounds its memory, but not where
 * FAKE_CUDA_NO_MEMORY_LIMIT is set, as an old driver. Without a daemon it gets the whole GPU, and
 * no error. FAKE_CUDA_UNITS is the SM count (132); FAKE_CUDA_ERROR is returned by cuInit; FAKE_CUDA_UUIDS lists the GPUs of the host,
 * "GPU-...,GPU-...".
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *pipe_dir(void) {
    const char *dir = getenv("CUDA_MPS_PIPE_DIRECTORY");
    return dir ? dir : "/tmp/nvidia-mps";
}

/* When a process began, in ticks; 0 where it does not run. */
static long long began(int pid) {
    char path[64], text[512], state;
    long long ticks;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    size_t size = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[size] = 0;
    char *end = strrchr(text, ')');
    const char *fields = ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %lld";
    return end && sscanf(end, fields, &state, &ticks) == 2 && state != 'Z' ? ticks : 0;
}

static int running(int pid) { return began(pid) != 0; }

static int mps(void) {
    char path[4096];
    int pid = 0;
    snprintf(path, sizeof path, "%s/nvidia-cuda-mps-control.pid", pipe_dir());
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    int read = fscanf(file, "%d", &pid);
    fclose(file);
    return read == 1 && running(pid);
}

/* The most that the server gives: a file of the fake daemon. */
static double server_percent(void) {
    char path[4096];
    double percent = 100;
    snprintf(path, sizeof path, "%s/percentage", pipe_dir());
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%lf", &percent) != 1) percent = 100;
    if (file) fclose(file);
    return percent;
}

static int units(void) {
    const char *total_text = getenv("FAKE_CUDA_UNITS");
    int total = total_text ? atoi(total_text) : 132;
    if (!mps()) return total;
    const char *text = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    char *end = "";
    double own = text ? strtod(text, &end) : 100, percent = server_percent();
    if (!*end && own > 0 && own < percent) percent = own;
    if (percent >= 100) return total;
    int count = (int)(percent * total / 100 + 1e-9);
    count -= count % 2;
    return count < 8 ? 8 : count;
}

int cuInit(unsigned flags) {
    (void)flags;
    const char *error = getenv("FAKE_CUDA_ERROR");
    if (error) return atoi(error);
    if (mps()) {
        char path[4096];
        snprintf(path, sizeof path, "%s/clients/%d", pipe_dir(), getpid());
        FILE *file = fopen(path, "w");
        if (file) fprintf(file, "%lld", began(getpid()));
        if (file) fclose(file);
    }
    return 0;
}

/* The UUIDs that this process sees: the host's, or the one in CUDA_VISIBLE_DEVICES. */
static const char *uuids(void) {
    const char *all = getenv("FAKE_CUDA_UUIDS"), *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (!all) all = "GPU-00000000-0000-0000-0000-000000000000";
    return visible && strncmp(visible, "GPU-", 4) == 0 && strstr(all, visible) ? visible : all;
}

int cuDeviceGetCount(int *count) {
    *count = 1;
    for (const char *c = uuids(); *c; c++) *count += *c == ',';
    return 0;
}

int cuDeviceGet(int *device, int index) {
    *device = index;
    return 0;
}

int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    const char *text = uuids();
    for (; device > 0; device--) text = strchr(text, ',') + 1;
    text += 4;
    for (int i = 0; i < 16; text++) {
        if (*text == '-') continue;
        unsigned byte;
        sscanf(text++, "%2x", &byte);
        uuid[i++] = (unsigned char)byte;
    }
    return 0;
}

/* NVML lists what has a context, client or not; the GPU's UUID ends with its index. */
int cuDevicePrimaryCtxRetain(void **context, int device) {
    char path[4096];
    const char *nvml = getenv("FAKE_NVML_DIR"), *visible = getenv("CUDA_VISIBLE_DEVICES");
    int gpu = visible && strlen(visible) > 12 ? atoi(visible + strlen(visible) - 12) : device;
    *context = NULL;
    snprintf(path, sizeof path, "%s/gpu%d/contexts", nvml ? nvml : "/nonexistent", gpu);
    mkdir(path, 0777);
    snprintf(path + strlen(path), sizeof path - strlen(path), "/%d", getpid());
    FILE *file = fopen(path, "w");
    if (file) fprintf(file, "%lld", began(getpid()));
    if (file) fclose(file);
    return 0;
}

int cuCtxSetCurrent(void *context) {
    (void)context;
    return 0;
}

/* Under a limit what is left of it is free, without what a context takes; else the whole card. */
int cuMemGetInfo_v2(size_t *free, size_t *total) {
    const char *limit = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), *deaf = getenv("FAKE_CUDA_NO_MEMORY_LIMIT");
    *total = *free = (size_t)80000 << 20;
    size_t most = limit ? (size_t)strtoul(strchr(limit, '=') + 1, NULL, 10) : 0, context = 24;
    if (!mps() || !most || deaf) return 0;
    if (most <= context) return 2;
    *free = (most - context) << 20;
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    if (attribute == 16) *value = units();
    else if (attribute == 39) *value = 2048;
    else if (attribute == 133) *value = mps();
    else return 1;
    return 0;
}

/* A kernel takes 1 ms, whoever else computes. FAKE_CUDA_NO_KERNELS is what loading one returns. */
static int launched;

int cuModuleLoadData(void **module, const char *ptx) {
    const char *error = getenv("FAKE_CUDA_NO_KERNELS");
    *module = NULL;
    if (error) return atoi(error);
    return strstr(ptx, ".target sm_70") && strstr(ptx, ".entry spin(") ? 0 : 218;
}

int cuModuleGetFunction(void **function, void *module, const char *name) {
    (void)module;
    *function = NULL;
    return strcmp(name, "spin") ? 500 : 0;
}

int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned threads) {
    (void)function;
    launched += x == 132 * 2 * 5 && y * z == 1 && threads == 1024;
    return 0;
}

int cuCtxSynchronize(void) {
    usleep(1000 * launched);
    launched = 0;
    return 0;
}

int cuEventCreate(void **event, unsigned flags) {
    (void)flags;
    *event = NULL;
    return 0;
}

int cuEventRecord(void *event, void *stream) {
    (void)event;
    (void)stream;
    return 0;
}

int cuEventSynchronize(void *event) {
    (void)event;
    return cuCtxSynchronize();
}
