/* What the programs need of the kernel's interface for BPF: types, map declarations, helper functions by their numbers.
 * The numbers are part of the kernel's stable interface (include/uapi/linux/bpf.h). */
#ifndef LEADLINE_HELPERS_H
#define LEADLINE_HELPERS_H

#include <linux/bpf.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;

#define SEC(name) __attribute__((section(name), used))
#define __uint(name, value) int (*name)[value]
#define __type(name, type) type *name
#define INLINE static inline __attribute__((always_inline))
#define NULL ((void *)0)

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static u32 (*bpf_get_smp_processor_id)(void) = (void *)8;
static u32 (*bpf_get_numa_node_id)(void) = (void *)42;
static long (*bpf_get_stack)(void *ctx, void *buffer, u32 size, u64 flags) = (void *)67;
static long (*bpf_probe_read_user)(void *to, u32 size, const void *from) = (void *)112;
static long (*bpf_probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static long (*bpf_probe_read_kernel_str)(void *to, u32 size, const void *from) = (void *)115;
static long (*bpf_ringbuf_output)(void *ring, void *data, u64 size, u64 flags) = (void *)130;
static void *(*bpf_ringbuf_reserve)(void *ring, u64 size, u64 flags) = (void *)131;
static void (*bpf_ringbuf_submit)(void *record, u64 flags) = (void *)132;
static u64 (*bpf_ringbuf_query)(void *ring, u64 flags) = (void *)134;
static long (*bpf_get_task_stack)(void *task, void *buffer, u32 size, u64 flags) = (void *)141;
static void *(*bpf_task_storage_get)(void *map, void *task, void *value, u64 flags) = (void *)156;
static struct task_struct *(*bpf_get_current_task_btf)(void) = (void *)158;
static long (*bpf_task_pt_regs)(struct task_struct *task) = (void *)175;

#define CALLS_OF_32_BIT 4096 /* what their numbers are counted from: they have a table of their own */
#define CALLS 512 /* of each table that are in tables of ours: first those of 64 bit */

#define READ(to, from) bpf_probe_read_kernel(&(to), sizeof(to), &(from))

#endif
