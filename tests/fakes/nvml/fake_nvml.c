/* A libnvidia-ml.so.1 without a GPU: the calls that the NVML source makes, answered from files.
 *
 * State is read on every call from the directory FAKE_NVML_DIR: a file per key, holding a value or
 * "error N" (the call then returns NVML code N). A missing file means the default. The keys are
 * listed in fake_nvml.py. `gpuN/every` with "error 15" makes each call on that GPU fail.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OK, UNINITIALIZED, BAD_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 6, TOO_SMALL };
enum { MAX_GPUS = 16 };

typedef struct { int index; } Device;
typedef struct { int gpu; double taken_s; } Sample;
typedef struct { unsigned id; int result; double value; char *names[3]; } Metric;
typedef struct { unsigned version, count; Sample *first, *second; Metric metrics[]; } MetricsGet;
typedef struct {
    unsigned id, scope;
    long long timestamp, latency;
    unsigned type, result;
    union { double d; unsigned u; unsigned long long ull; } value;
} FieldValue;
typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; } Process;

static Device devices[MAX_GPUS];
static int users;
static struct { double tick_s, mj; } energy[MAX_GPUS];

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Content of a state file in `text`; 0, or the code of an "error N". */
static int content(const char *folder, const char *key, char *text, size_t size, int *found) {
    char path[4096];
    const char *root = getenv("FAKE_NVML_DIR");
    snprintf(path, sizeof path, "%s/%s/%s", root ? root : "/nonexistent", folder, key);
    FILE *file = fopen(path, "r");
    *found = file != NULL;
    text[0] = 0;
    if (!file) return OK;
    text[fread(text, 1, size - 1, file)] = 0;
    fclose(file);
    int code = 0;
    return sscanf(text, "error %d", &code) == 1 ? code : OK;
}

static int words(const char *folder, const char *key, const char *otherwise, char *out, unsigned n) {
    char text[256];
    int found, code = content(folder, key, text, sizeof text, &found);
    text[strcspn(text, "\n")] = 0;
    if (code == OK) snprintf(out, n, "%s", found ? text : otherwise);
    return code;
}

static int number(const char *folder, const char *key, double otherwise, double *out) {
    char text[64];
    int found, code = content(folder, key, text, sizeof text, &found);
    *out = found ? strtod(text, NULL) : otherwise;
    return code;
}

static const char *folder_of(const Device *device, char *name) {
    sprintf(name, "gpu%d", device->index);
    return name;
}

static int device_number(const Device *device, const char *key, double otherwise, double *out) {
    char folder[16];
    double ignored;
    if (!users) return UNINITIALIZED;
    int code = number(folder_of(device, folder), "every", 0, &ignored);
    return code ? code : number(folder, key, otherwise, out);
}

static int device_unsigned(const Device *d, const char *key, double otherwise, unsigned *out) {
    double value = 0;
    int code = device_number(d, key, otherwise, &value);
    if (code == OK) *out = (unsigned)value;
    return code;
}

static int device_words(Device *d, const char *key, const char *otherwise, char *out, unsigned n) {
    char folder[16];
    double ignored;
    int code = device_number(d, "every", 0, &ignored);
    return code ? code : words(folder_of(d, folder), key, otherwise, out, n);
}

static int gpu_count(void) {
    double count;
    number(".", "gpu_count", 1, &count);
    return (int)count;
}

static const char *default_uuid(const Device *device, char *uuid) {
    sprintf(uuid, "GPU-00000000-0000-0000-0000-%012d", device->index);
    return uuid;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    double ignored;
    int code = number(".", "init", 0, &ignored);
    if (code == OK) users++;
    for (int i = 0; i < MAX_GPUS; i++) devices[i].index = i;
    return code;
}

int nvmlShutdown(void) { return users ? (users--, OK) : UNINITIALIZED; }

const char *nvmlErrorString(int code) { (void)code; return "error of the fake NVML"; }

int nvmlSystemGetDriverVersion(char *out, unsigned n) {
    return words(".", "driver", "580.00.00", out, n);
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = (unsigned)gpu_count();
    return users ? OK : UNINITIALIZED;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    if (!users) return UNINITIALIZED;
    if ((int)index >= gpu_count() || index >= MAX_GPUS) return BAD_ARGUMENT;
    *device = &devices[index];
    return OK;
}

int nvmlDeviceGetUUID(Device *device, char *out, unsigned n) {
    char uuid[64];
    return device_words(device, "uuid", default_uuid(device, uuid), out, n);
}

int nvmlDeviceGetHandleByUUID(const char *wanted, Device **device) {
    char uuid[128];
    if (!users) return UNINITIALIZED;
    for (int i = 0; i < gpu_count() && i < MAX_GPUS; i++)
        if (nvmlDeviceGetUUID(&devices[i], uuid, sizeof uuid) == OK && !strcmp(uuid, wanted)) {
            *device = &devices[i];
            return OK;
        }
    return NOT_FOUND;
}

int nvmlDeviceGetName(Device *device, char *out, unsigned n) {
    return device_words(device, "name", "Fake H200", out, n);
}

int nvmlDeviceGetIndex(Device *device, unsigned *index) {
    return device_unsigned(device, "index", device->index, index);
}

/* Whether jobs have drawn power (fake_job.py), none of which lives: what is killed writes no 0. */
static int all_ended(const char *folder) {
    char path[4096];
    int jobs = 0, alive = 0;
    snprintf(path, sizeof path, "%s/%s/jobs", getenv("FAKE_NVML_DIR"), folder);
    DIR *files = opendir(path);
    for (struct dirent *file; files && (file = readdir(files));) {
        if (file->d_name[strspn(file->d_name, "0123456789")]) continue;
        snprintf(path, sizeof path, "/proc/%s/exe", file->d_name);
        jobs++, alive += !access(path, F_OK);
    }
    if (files) closedir(files);
    return jobs && !alive;
}

/* What is drawn at a moment follows from the clock: who wrote it down need not run just then. */
static int power_at(const Device *device, double time_s, double *mw) {
    char folder[16], text[128];
    double during = 0, from_s = 0, until_s = 0, noise = 0;
    int found, code = device_number(device, "power_mw", 80000, mw);
    if (code) return code;
    content(folder_of(device, folder), "power_mw", text, sizeof text, &found);
    if (sscanf(text, "%lf %lf %lf %lf", mw, &during, &from_s, &until_s) == 4)
        if (from_s <= time_s && time_s < until_s) *mw = during;
    if (found && all_ended(folder)) *mw = 80000;
    device_number(device, "power_noise_mw", 0, &noise);
    *mw += noise * (double)((long long)(time_s / 0.005) % 7);
    return OK;
}

static int power_now(const Device *device, unsigned *mw) {
    double value = 0;
    int code = power_at(device, now_s(), &value);
    if (code == OK) *mw = (unsigned)value;
    return code;
}

int nvmlDeviceGetPowerUsage(Device *device, unsigned *mw) {
    int code = device_unsigned(device, "power_usage", 0, mw);
    return code ? code : power_now(device, mw);
}

int nvmlDeviceGetFieldValues(Device *device, int count, FieldValue *values) {
    double ignored;
    int code = device_number(device, "field_values", 0, &ignored);
    for (int i = 0; code == OK && i < count; i++) {
        values[i].result = NOT_SUPPORTED;
        if (values[i].scope == 2) {
            const char *key = values[i].id == 186 ? "power_memory_instant_mw" : "power_memory_average_mw";
            double mw = 0;
            int result = device_number(device, key, -1, &mw);
            if (mw < 0) continue;
            values[i].value.u = (unsigned)mw;
            values[i].result = (unsigned)result;
        }
        if (values[i].id != 186 || values[i].scope) continue;
        int result = device_number(device, "power_instant", 0, &ignored);
        if (!result) result = power_now(device, &values[i].value.u);
        values[i].result = (unsigned)result;
    }
    return code;
}

/* Ticks every 0.1 s of real time with the power of that moment, unless `energy_mj` says a value. */
int nvmlDeviceGetTotalEnergyConsumption(Device *device, unsigned long long *mj) {
    double given, power_mw = 0;
    int code = device_number(device, "energy_mj", -1, &given);
    if (code) return code;
    if (given < 0) {
        double *tick_s = &energy[device->index].tick_s, *sum = &energy[device->index].mj;
        if (*tick_s == 0) *tick_s = now_s(), *sum = 1e6;
        for (; now_s() - *tick_s >= 0.1; *sum += power_mw * 0.1) {
            *tick_s += 0.1;
            power_at(device, *tick_s, &power_mw);
        }
        given = *sum;
    }
    *mj = (unsigned long long)given;
    return OK;
}

int nvmlDeviceGetClockInfo(Device *device, unsigned type, unsigned *mhz) {
    if (type == 2) return device_unsigned(device, "mem_clock_mhz", 3201, mhz);
    return device_unsigned(device, "sm_clock_mhz", 1980, mhz);
}

int nvmlDeviceGetTemperature(Device *device, unsigned sensor, unsigned *celsius) {
    (void)sensor;
    return device_unsigned(device, "temperature_c", 40, celsius);
}

int nvmlDeviceGetMemoryInfo(Device *device, unsigned long long *total_free_used) {
    double total = 0, used = 0;
    int code = device_number(device, "memory_total_mib", 143771, &total);
    if (!code) code = device_number(device, "memory_used_mib", 600, &used);
    total_free_used[0] = (unsigned long long)(total * 1048576);
    total_free_used[1] = (unsigned long long)((total - used) * 1048576);
    total_free_used[2] = (unsigned long long)(used * 1048576);
    return code;
}

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} Memory2;

int nvmlDeviceGetMemoryInfo_v2(Device *device, Memory2 *memory) {
    unsigned long long total_free_used[3];
    double reserved = 0;
    int code = nvmlDeviceGetMemoryInfo(device, total_free_used);
    if (!code) code = device_number(device, "memory_reserved_mib", 0, &reserved);
    memory->total = total_free_used[0];
    memory->free = total_free_used[1];
    memory->reserved = (unsigned long long)(reserved * 1048576);
    memory->used = total_free_used[2] - memory->reserved;
    return code;
}

int nvmlDeviceGetEnforcedPowerLimit(Device *device, unsigned *mw) {
    return device_unsigned(device, "power_limit_mw", 700000, mw);
}

int nvmlDeviceGetPowerManagementLimit(Device *device, unsigned *mw) {
    return device_unsigned(device, "power_limit_mw", 700000, mw);
}

int nvmlDeviceGetPowerManagementLimitConstraints(Device *device, unsigned *least, unsigned *most) {
    (void)device;
    *least = 200000;
    *most = 700000;
    return users ? OK : UNINITIALIZED;
}

int nvmlDeviceSetPowerManagementLimit(Device *device, unsigned mw) {
    char path[4096];
    double ignored = 0;
    int code = device_number(device, "power_limit_set", 0, &ignored);
    if (code) return code;
    const char *root = getenv("FAKE_NVML_DIR");
    snprintf(path, sizeof path, "%s/gpu%d/power_limit_mw", root ? root : "", device->index);
    FILE *file = fopen(path, "w");
    if (!file) return NOT_SUPPORTED;
    fprintf(file, "%u", mw);
    return fclose(file) ? NOT_SUPPORTED : OK;
}

int nvmlDeviceGetCurrentClocksEventReasons(Device *device, unsigned long long *mask) {
    double value = 0;
    int code = device_number(device, "throttle", 0, &value);
    *mask = (unsigned long long)value;
    return code;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(Device *device, unsigned long long *mask) {
    double value = 0;
    int code = device_number(device, "throttle_old", -1, &value);
    if (!code && value < 0) return NOT_SUPPORTED;
    *mask = (unsigned long long)value;
    return code;
}

int nvmlDeviceGetUtilizationRates(Device *device, unsigned *gpu_memory) {
    int code = device_unsigned(device, "memory_busy", 30, &gpu_memory[1]);
    gpu_memory[0] = 100;
    return code;
}

int nvmlDeviceGetComputeMode(Device *device, unsigned *mode) {
    return device_unsigned(device, "compute_mode", 0, mode);
}

int nvmlDeviceGetMigMode(Device *device, unsigned *current, unsigned *pending) {
    *pending = 0;
    return device_unsigned(device, "mig", 0, current);
}

/* Adds the living processes with a file of their number in `contexts`. The fake libcuda makes it, and
 * writes when its process began, in ticks: the number may be another's by now. */
static unsigned contexts(Device *device, unsigned n, unsigned room, Process *out) {
    char path[4096], stat[512], folder[16], state;
    const char *fields = ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %lld";
    const char *root = getenv("FAKE_NVML_DIR");
    snprintf(path, sizeof path, "%s/%s/contexts", root ? root : "/nonexistent", folder_of(device, folder));
    DIR *files = opendir(path);
    for (struct dirent *entry; files && (entry = readdir(files));) {
        unsigned pid = (unsigned)strtoul(entry->d_name, NULL, 10);
        long long wanted = 0, began = 0;
        char inside[300];
        snprintf(inside, sizeof inside, "contexts/%s", entry->d_name);
        int found;
        if (!pid || content(folder, inside, stat, sizeof stat, &found)) continue;
        sscanf(stat, "%lld", &wanted);
        snprintf(path, sizeof path, "/proc/%u/stat", pid);
        FILE *file = fopen(path, "r");
        if (!file) continue;
        stat[fread(stat, 1, sizeof stat - 1, file)] = 0;
        fclose(file);
        char *end = strrchr(stat, ')');
        if (!end || sscanf(end, fields, &state, &began) != 2 || state == 'Z') continue;
        if (wanted && wanted != began) continue;
        if (out && n < room) out[n] = (Process){pid, 100 << 20, ~0U, ~0U};
        n++;
    }
    if (files) closedir(files);
    return n;
}

/* Lines "pid MiB"; "pid n/a" is a process whose memory the driver does not tell. */
static int processes(Device *device, const char *key, unsigned *count, Process *out) {
    char text[8192], folder[16];
    double ignored;
    int found, code = device_number(device, "every", 0, &ignored);
    if (!code) code = content(folder_of(device, folder), key, text, sizeof text, &found);
    unsigned n = 0;
    for (char *line = strtok(text, "\n"); !code && line; line = strtok(NULL, "\n")) {
        double mib = 0;
        unsigned pid = 0;
        int fields = sscanf(line, "%u %lf", &pid, &mib);
        if (fields < 1) continue;
        unsigned long long used = fields == 2 ? (unsigned long long)(mib * 1048576) : ~0ULL;
        if (out && n < *count) out[n] = (Process){pid, used, ~0U, ~0U};
        n++;
    }
    if (!code && !strcmp(key, "compute_processes")) n = contexts(device, n, out ? *count : 0, out);
    int fits = out ? n <= *count : n == 0;
    *count = n;
    return code ? code : fits ? OK : TOO_SMALL;
}

int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *count, Process *out) {
    return processes(device, "compute_processes", count, out);
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(Device *device, unsigned *count, Process *out) {
    return processes(device, "mps_processes", count, out);
}

int nvmlGpmQueryDeviceSupport(Device *device, unsigned *version_supported) {
    return device_unsigned(device, "gpm_support", 1, &version_supported[1]);
}

int nvmlGpmSampleAlloc(Sample **sample) {
    *sample = calloc(1, sizeof **sample);
    return OK;
}

int nvmlGpmSampleFree(Sample *sample) { free(sample); return OK; }

int nvmlGpmSampleGet(Device *device, Sample *sample) {
    double ignored;
    *sample = (Sample){device->index, now_s()};
    return device_number(device, "gpm_sample", 0, &ignored);
}

/* Percentages are 10 + the metric's number, traffic 1000 + it. */
int nvmlGpmMetricsGet(MetricsGet *get) {
    if (get->version != 1 || get->second->taken_s - get->first->taken_s <= 0.1) return BAD_ARGUMENT;
    for (unsigned i = 0; i < get->count; i++) {
        Metric *metric = &get->metrics[i];
        char key[32];
        sprintf(key, "gpm_%u", metric->id);
        double otherwise = (metric->id < 20 ? 10 : 1000) + metric->id;
        const Device *device = &devices[get->first->gpu];
        metric->result = device_number(device, key, otherwise, &metric->value);
    }
    return OK;
}
