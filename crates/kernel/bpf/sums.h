/* Calls summed in the kernel, in place of a record for each: by thread, call and error, handed over once in a while. */
#ifndef LEADLINE_SUMS_H
#define LEADLINE_SUMS_H

#include "thread.h"

#define SUMS_EVERY_NS 1000000000ull

/* Hands the sums of calls over; whether there was room for all. What finds none stays and goes on. */
static __attribute__((noinline)) u32 put_sums(struct thread *t, u64 now) {
  u32 all = 1;
  for (u32 i = 0; i < SUM_SLOTS; i++) {
    struct sum *sum = &t->sums[i];
    if (!sum->used)
      continue;
    struct call_sum *r = bpf_ringbuf_reserve(&vital, sizeof(*r), 0);
    if (!r) {
      all = 0;
      continue;
    }
    put_head(&r->head, CALL_SUM, t, now);
    r->sum = *sum;
    sum->used = 0;
    SUBMIT(r);
  }
  return all;
}

/* The sums of calls, and of everything, once in a while. The thread itself does it, so that nothing is added meanwhile. */
INLINE void put_sums_when_due(struct thread *t, struct task_struct *task, u64 now) {
  if (now - t->summed_since < SUMS_EVERY_NS)
    return;
  t->summed_since = now;
  put_sums(t, now);
  if (put_end(t, task, now, 0))
    begin_totals(t, task, now);
}

/* Adds a call that ends now. */
INLINE void add_to_sums(struct thread *t, u32 error, u64 now) {
  u32 first = (t->nr * 7 + error) & (SUM_SLOTS - 1);
  struct sum *sum = NULL;
  for (u32 i = 0; i < SUM_SLOTS; i++) {
    struct sum *one = &t->sums[(first + i) & (SUM_SLOTS - 1)];
    if (!one->used || (one->nr == t->nr && one->error == error)) {
      sum = one;
      break;
    }
  }
  if (!sum) { /* more kinds of calls than slots: makes room */
    put_sums(t, now);
    sum = &t->sums[first];
    if (sum->used) {
      t->totals.lost++;
      count_lost(LOST_EVENTS, 1);
      return;
    }
  }
  if (!sum->used) {
    __builtin_memset(sum, 0, sizeof(*sum));
    sum->used = 1;
    sum->nr = t->nr;
    sum->error = error;
    sum->since = t->call_since;
  }
  u64 duration = now - t->call_since;
  sum->calls++;
  sum->duration_ns += duration;
  sum->sleep_ns += t->call_sleep_ns;
  sum->runq_ns += t->call_runq_ns;
  sum->unknown_ns += t->call_unknown_ns;
  sum->sleeps += t->call_sleeps;
  if (duration > sum->longest_ns)
    sum->longest_ns = duration;
}

#endif
