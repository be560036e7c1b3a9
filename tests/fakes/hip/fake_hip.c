/* A libamdhip64.so with the one call of the probe.
 *
 * CUs of the first GPU: FAKE_HIP_CUS where it is set (a runtime that ignores its mask), else the
 * bits of ROC_GLOBAL_CU_MASK, as HIP counts them, else 304. FAKE_HIP_ERROR is returned as it is.
 */
#include <stdlib.h>
#include <string.h>

static int bits(const char *hexadecimal) {
    int count = 0;
    for (const char *c = hexadecimal; *c; c++) {
        const char digit[2] = {*c, 0};
        count += __builtin_popcountl(strtoul(digit, NULL, 16));
    }
    return count;
}

int hipDeviceGetAttribute(int *value, int attribute, int device) {
    const char *error = getenv("FAKE_HIP_ERROR"), *cus = getenv("FAKE_HIP_CUS");
    const char *mask = getenv("ROC_GLOBAL_CU_MASK");
    if (error) return atoi(error);
    if (attribute != 63 || device != 0) return 1;
    *value = cus ? atoi(cus) : mask && strncmp(mask, "0x", 2) == 0 ? bits(mask + 2) : 304;
    return 0;
}
