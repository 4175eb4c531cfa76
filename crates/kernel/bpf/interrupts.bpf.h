/* Time of interrupts, by CPU and kind, and as part of the time of the thread they interrupt. An interrupt that comes during a soft
 * interrupt counts for itself alone. */
#ifndef LEADLINE_INTERRUPTS_H
#define LEADLINE_INTERRUPTS_H

#include "state.h"

#define DEPTH_MAX 2 /* one of a device in a soft one; neither nests in its like */
#define HARD 10 /* after the kinds of soft interrupts */
#define KINDS 11

struct interrupts {
  u64 since; /* of the innermost one, or when it went on */
  u64 outermost;
  u32 depth;
  u32 kinds[DEPTH_MAX];
};
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, u32);
  __type(value, struct interrupts);
} interrupts SEC(".maps");

struct interrupt_sum {
  u64 count;
  u64 time_ns;
};
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, KINDS);
  __type(key, u32);
  __type(value, struct interrupt_sum);
} interrupt_sums SEC(".maps");

INLINE struct interrupts *interrupts_here(void) {
  u32 zero = 0;
  return bpf_map_lookup_elem(&interrupts, &zero);
}

INLINE void interrupted_for(struct interrupts *i, u64 now, u32 ends) {
  struct interrupt_sum *sum = bpf_map_lookup_elem(&interrupt_sums, &i->kinds[(i->depth - 1) & (DEPTH_MAX - 1)]);
  if (!sum)
    return;
  sum->time_ns += now - i->since;
  sum->count += ends;
}

INLINE int interrupt_begins(u32 kind) {
  struct interrupts *i = interrupts_here();
  u64 now = now_in_window();
  if (!i || !now)
    return 0;
  if (kind != HARD)
    i->depth = 0;
  else if (i->depth && i->kinds[(i->depth - 1) & (DEPTH_MAX - 1)] == HARD)
    i->depth--;
  if (i->depth)
    interrupted_for(i, now, 0);
  else
    i->outermost = now;
  i->kinds[i->depth++ & (DEPTH_MAX - 1)] = kind;
  i->since = now;
  return 0;
}

INLINE int interrupt_ends(void) {
  struct interrupts *i = interrupts_here();
  if (!i || !i->depth) /* it began before the trace */
    return 0;
  u64 now = bpf_ktime_get_ns();
  interrupted_for(i, now, 1);
  i->depth--;
  i->since = now;
  if (i->depth)
    return 0;
  struct thread *t = thread_of(bpf_get_current_task_btf());
  if (t && t->state == RUNNING && i->outermost >= t->since)
    t->totals.interrupt_ns += now - i->outermost;
  return 0;
}

SEC("tp_btf/softirq_entry")
int softirq_begins(u64 *ctx) {
  return interrupt_begins((u32)ctx[0] < HARD ? (u32)ctx[0] : HARD - 1);
}

SEC("tp_btf/softirq_exit")
int softirq_ends(u64 *ctx) {
  return interrupt_ends();
}

SEC("tp_btf/irq_handler_entry")
int interrupt_handler_begins(u64 *ctx) {
  return interrupt_begins(HARD);
}

SEC("tp_btf/irq_handler_exit")
int interrupt_handler_ends(u64 *ctx) {
  return interrupt_ends();
}

#endif
