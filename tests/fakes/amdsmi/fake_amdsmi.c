/* The calls of libamd_smi.so that answer; every other symbol returns 2, "not supported".
 *
 * Two GPUs. FAKE_AMDSMI is "<error code> <current W> <average W>"; structures as in amdsmi.h.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned word(int index) {
    unsigned words[3] = {0, 0, 0};
    const char *text = getenv("FAKE_AMDSMI");
    if (text) sscanf(text, "%u %u %u", &words[0], &words[1], &words[2]);
    return words[index];
}

int amdsmi_init(uint64_t flags) { (void)flags; return (int)word(0); }
int amdsmi_shut_down(void) { return 0; }
void amdsmi_free_name_value_pairs(void *pairs) { (void)pairs; }

int amdsmi_get_socket_handles(uint32_t *count, void **sockets) {
    *count = 1;
    if (sockets) sockets[0] = (void *)1;
    return 0;
}

int amdsmi_get_processor_handles(void *socket, uint32_t *count, void **devices) {
    (void)socket;
    *count = 2;
    for (uintptr_t i = 0; devices && i < 2; i++) devices[i] = (void *)(i + 1);
    return 0;
}

int amdsmi_get_gpu_device_uuid(void *device, uint32_t *length, char *uuid) {
    snprintf(uuid, *length, "uuid-%d", (int)(uintptr_t)device);
    return 0;
}

int amdsmi_get_power_info(void *device, void *out) {
    struct { uint64_t socket; uint32_t now, average; uint64_t volts[3]; uint32_t limit; } power = {
        0xFFFF, word(1), word(2), {0, 0, 0}, 750};
    memcpy(out, &power, sizeof power);
    return (uintptr_t)device == 1 ? 0 : 10;
}

int amdsmi_get_energy_count(void *device, uint64_t *ticks, float *resolution, uint64_t *time) {
    (void)device;
    *ticks = word(1) ? 1000000 : 0, *resolution = 15.3f, *time = 1;
    return 0;
}

int amdsmi_get_gpu_activity(void *device, uint32_t *gfx_umc_mm) {
    (void)device;
    gfx_umc_mm[0] = 99, gfx_umc_mm[1] = 37, gfx_umc_mm[2] = 0xFFFF;
    return 0;
}

int amdsmi_get_clock_info(void *device, unsigned type, uint32_t *clock) {
    (void)device;
    clock[0] = type == 0 ? 2100 : type == 4 ? 1300 : 0xFFFFFFFF;
    return 0;
}

int amdsmi_get_temp_metric(void *device, unsigned type, unsigned metric, int64_t *celsius) {
    (void)device;
    *celsius = 58;
    return type == 1 && metric == 0 ? 0 : 2;
}

int amdsmi_get_gpu_vram_usage(void *device, uint32_t *total_used) {
    (void)device;
    total_used[0] = 196592, total_used[1] = 283;
    return 0;
}
