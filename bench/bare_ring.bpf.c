/* The floor of any trace that streams each event by itself: at the same tracepoints as leadline's, for the same threads, records with room
 * for what leadline notes of a call and of a stay off the CPU are reserved and submitted, and nothing is put into them. Of process 0 the
 * programs do nothing: that is what the way to these tracepoints costs, before any trace begins. */
#include "records.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct task_struct {
  int tgid;
  struct task_struct *real_parent;
};
#pragma clang attribute pop

char LICENSE[] SEC("license") = "Dual BSD/GPL";

volatile const u32 traced = 0; /* this process and its children; known when a program is loaded, so that 0 leaves nothing of it */
u64 lost;

#define CALL_BYTES 128
#define STAY_BYTES 64

struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, 1 << 25);
} ring SEC(".maps");

INLINE int is_traced(struct task_struct *task) {
  return traced && (task->tgid == traced || task->real_parent->tgid == traced);
}

INLINE int submit(u64 size) {
  void *record = bpf_ringbuf_reserve(&ring, size, 0);
  if (record)
    bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
  else
    __sync_fetch_and_add(&lost, 1);
  return 0;
}

SEC("tp_btf/sys_enter")
int call_begins(u64 *ctx) {
  return is_traced(bpf_get_current_task_btf());
}

SEC("tp_btf/sys_exit")
int call_ends(u64 *ctx) {
  return is_traced(bpf_get_current_task_btf()) ? submit(CALL_BYTES) : 0;
}

SEC("tp_btf/sched_switch")
int switched(u64 *ctx) {
  return is_traced((void *)ctx[2]) ? submit(STAY_BYTES) : 0;
}

SEC("tp_btf/sched_waking")
int waking(u64 *ctx) {
  return is_traced((void *)ctx[0]);
}
